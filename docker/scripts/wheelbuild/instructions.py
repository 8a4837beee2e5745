"""Looks for AVX in the code of a wheel, function by function, by disassembling every library in it.

Libraries such as XNNPACK and libjpeg-turbo carry kernels for several processors and choose by ``cpuid`` while they run.
Code for AVX in those is right in a wheel for processors without it. In any other function it ends the process there.
The kernels are known by their names: ``dispatched`` lists them.
"""

import re
import subprocess
import tempfile
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

WITHOUT_AVX = "--copt=-mno-avx"
"""The flag of a build whose wheel must do without AVX."""

_NAMES = Path(__file__).with_name("dispatched")
_ELF_X86 = re.compile(rb"\x7fELF\x02\x01.{12}\x3e\x00", re.DOTALL)
"""How a 64-bit ELF file for x86-64 begins; cubins are for another machine."""

_FILTER = r">:$|^[[:space:]]+(v|k[a-z]+[bwdq]|tile|tdp|andn|bextr|bls|bzhi|mulx|pdep|pext|rorx|sarx|shlx|shrx)"
"""What is read of a disassembly, 77 million lines for TensorFlow: names, and what may be such an instruction."""

_INSTRUCTION = re.compile(
    r"\s+(?!v(?:err|erw|mcall|mclear|mfunc|mlaunch|mload|mmcall|mptr|mread|mresume|mrun|msave|mwrite|mxo))"
    r"(?:v\w+|k(?:mov|andn?|x?n?or|not|add|test|ortest|shift[lr]|unpck)\w*|tile\w+|tdp\w+|"
    r"(?:andn|bextr|bls(?:i|r|msk)|bzhi|mulx|pdep|pext|rorx|sarx|shlx|shrx)[lq]?)\b"
)
"""Instructions that an x86-64-v2 processor has not: all that are encoded by VEX or EVEX (Intel's manual, 2.3 of volume
2), the general ones of BMI among them. Left out are those of virtual machines that begin with a v, and ``tzcnt`` and
``lzcnt``, which older processors run as ``bsf`` and ``bsr``: compilers use these where both give the same."""


@dataclass(frozen=True, kw_only=True)
class Found:
    instructions: int = 0  # all that a processor without AVX lacks
    refused: dict[str, int] = field(
        default_factory=dict
    )  # those outside of dispatched functions, by library and function

    def describe(self) -> dict[str, int]:
        return {"beyond": self.instructions, "refused": sum(self.refused.values())}


def read_names(path: Path = _NAMES) -> re.Pattern[str]:
    """Return a pattern for the names of dispatched functions, from a file with a regular expression a line."""
    lines = (line.partition("#")[0].strip() for line in path.read_text().splitlines())
    return re.compile("|".join(f"(?:{line})" for line in lines if line))


def count(disassembly: Iterable[str]) -> Counter[str]:
    """Count the instructions that need AVX, by function, in what ``llvm-objdump`` prints."""
    found: Counter[str] = Counter()
    name = "code without a name"
    for line in disassembly:
        if line.endswith(">:\n"):
            name = line.strip()[1:-2]
        elif _INSTRUCTION.match(line):
            found[name] += 1
    return found


def inspect(wheel: Path, objdump: str) -> Found:
    """Disassemble every library of a wheel. Raises OSError: the disassembler fails."""
    dispatched, total = read_names(), 0
    refused: dict[str, int] = {}
    with zipfile.ZipFile(wheel) as archive, tempfile.TemporaryDirectory() as folder:
        for item in archive.infolist():
            with archive.open(item) as content:
                if not _ELF_X86.match(content.read(20)):
                    continue
            path = Path(archive.extract(item, folder))
            found = count(_disassemble(path, objdump))
            path.unlink()
            total += found.total()
            library = item.filename.rpartition("/")[2]
            refused |= {f"{library}: {name}": number for name, number in found.items() if not dispatched.search(name)}
    return Found(instructions=total, refused=refused)


def _disassemble(path: Path, objdump: str) -> Iterator[str]:
    argv = [objdump, "--disassemble", "--no-show-raw-insn", "--no-leading-addr", str(path)]
    with (
        subprocess.Popen(argv, stdout=subprocess.PIPE) as disassembler,
        subprocess.Popen(
            ["grep", "-aE", _FILTER], stdin=disassembler.stdout, stdout=subprocess.PIPE, text=True
        ) as reader,
    ):
        yield from reader.stdout or ()
    if disassembler.returncode:
        raise OSError(f"{objdump} failed with exit code {disassembler.returncode} on {path.name}")


def explain(found: Found, shown: int = 8) -> Iterator[str]:
    """Yield lines that name the functions with AVX, those with the most first; none if there are none."""
    if not found.refused:
        return
    worst = sorted(found.refused.items(), key=lambda pair: (-pair[1], pair[0]))
    yield f"wheel: instructions beyond x86-64-v2 in functions that are not known to be chosen by cpuid: {len(worst)}"
    yield from (f"wheel: instructions: {number} in {name[:160]}" for name, number in worst[:shown])
