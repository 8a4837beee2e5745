"""Compile TensorFlow's own GPU kernels out of a source tree, before Bazel, and write down what became of each.

Run in the stage ``kernel-prover``. The flags are those of upstream's crosstool, as in proof/prove.py. Headers that
upstream's build generates (protobuf's, for one) are taken from the published wheel of the same version.
"""

import hashlib
import json
import math
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import fatbin
import prove
from prove import ProofError, Toolchain

from train.cores import count_cores  # mounted beside these scripts

HERE = Path(__file__).parent
SOURCE = Path("/usr/src/tensorflow")
KEPT = Path("/var/cache/bazel/kernels")
"""What was compiled before, by the digest of its inputs: an interrupted proof resumes."""

FOLDERS = ("tensorflow/core/kernels", "third_party/xla/xla")
ROOTS = (".", "third_party/xla", "third_party/xla/third_party/tsl")
"""Where quoted includes are looked for: the three repositories of the tree."""

MEMORY_PER_JOB = 1 << 31
"""Bytes that are left for each compiler, as for the jobs of Bazel (tensorflow#41480). Not measured for kernels."""

ENTRY = re.compile(r"Compiling entry function '(\S+)'.*?(\d+) bytes spill stores.*?Used (\d+) registers", re.DOTALL)
"""What ptxas says of a kernel: its name, the bytes that it spills, its registers."""

CAUSES = {
    "missing header": re.compile(r"fatal error: '[^']+' file not found"),
    "memory": re.compile(r"Killed|signal 9|Cannot allocate memory"),
    "assembler": re.compile(r"ptxas"),
}


@dataclass(frozen=True, kw_only=True)
class Compiled:
    file: str  # path in the tree
    seconds: float  # from start to end, for devices and host together, when it was compiled
    kernels: int = 0  # of all architectures
    registers: int = 0  # the most that a kernel uses
    spills: int = 0  # bytes that are stored by all kernels together
    cause: str = ""  # of a failure: compiler, missing header, memory, assembler
    error: str = ""  # its first line
    kept: str = ""  # name of its object file


def find_sources(tree: Path, wanted: str) -> list[Path]:
    """Return the CUDA files of a tree: all, or as many as asked, spread over them. Raises ValueError.

    Tests are left out, and so are the files for AMD's cards, which define the same symbols.
    """
    paths = (path for name in FOLDERS for path in (tree / name).rglob("*.cu.cc"))
    found = sorted(path for path in paths if not path.name.endswith("_test.cu.cc") and path.parent.name != "rocm")
    if not found:
        raise ValueError(f"there is no .cu.cc file in {' or '.join(FOLDERS)}; the source is no tree of TensorFlow")
    if wanted == "all":
        return found
    if not wanted.isdecimal() or not int(wanted):
        raise ValueError(f"KERNELS is {wanted!r}; write a number from 1, or all")
    count = min(int(wanted), len(found))
    return [found[index * len(found) // count] for index in range(count)]


def scatter(count: int) -> list[int]:
    """Return the numbers below `count` in an order of which each beginning is spread evenly over all of them.

    Files with like names cost alike, and files of one kind come first by name. In this order the first tenth costs
    about a tenth, so that the time left can be told from it. Multiples of the golden section are spread that way.
    """
    section = (math.sqrt(5) - 1) / 2
    turns = sorted(range(count), key=lambda turn: turn * section % 1)  # turns[n]: when number n has its turn
    return sorted(range(count), key=turns.__getitem__)


def list_flags(toolchain: Toolchain, tree: Path) -> list[str | Path]:
    """Return the flags of all files. The tree goes before the published headers, which include generated ones."""
    folders = [*(tree / name for name in ROOTS), HERE / "missing"]
    return [*(f"-I{folder}" for folder in folders), *prove.list_flags(toolchain)]


@dataclass(frozen=True, kw_only=True)
class Kernels:
    """How the kernels of a tree are compiled."""

    toolchain: Toolchain
    tree: Path
    flags: Sequence[str | Path]
    features: dict[str, list[str]]  # by architecture: how upstream's rules choose the version of PTX
    kept: Path = KEPT

    @property
    def architectures(self) -> list[str]:
        return list(self.features)

    @property
    def host(self) -> list[str | Path]:
        return [*self.flags, f"--cuda-gpu-arch=sm_{self.architectures[0]}", "--cuda-host-only"]

    def device(self, architecture: str) -> list[str | Path]:
        features = self.features[architecture]
        return [*self.flags, f"--cuda-gpu-arch=sm_{architecture}", "--cuda-device-only", *features]

    def compile(self, source: Path) -> Compiled:
        """Compile a file for each device and for the host, or take what an earlier proof kept."""
        name, began = str(source.relative_to(self.tree)), time.monotonic()
        try:
            kept = self.kept / self._digest(source)
            if kept.with_suffix(".json").exists():
                return replace(Compiled(**json.loads(kept.with_suffix(".json").read_text())), kept=kept.name)
            with tempfile.TemporaryDirectory(dir=self.toolchain.work) as folder:
                entries = self._compile(source, Path(folder))
                seconds = round(time.monotonic() - began, 1)
                done = Compiled(file=name, seconds=seconds, **count(entries))
                write(kept.with_suffix(".o"), (Path(folder) / "unit.o").read_bytes())
            # Last, because it says that the rest is there.
            write(kept.with_suffix(".json"), json.dumps(asdict(done)).encode())
            return replace(done, kept=kept.name)
        except ProofError as error:
            seconds = round(time.monotonic() - began, 1)
            return Compiled(file=name, seconds=seconds, cause=find_cause(str(error)), error=shorten(str(error)))

    def _digest(self, source: Path) -> str:
        """Return the digest of what the result depends on, the text of all headers among it."""
        sides = [self.host, *(self.device(architecture) for architecture in self.features)]
        texts = [prove.run(self.toolchain.clang, *side, source, "-E") for side in sides]
        inputs = "\0".join((*texts, repr(sides), prove.run(self.toolchain.clang, "--version")))
        # The folder has another name each time, and some headers are in it.
        return hashlib.sha256(inputs.replace(str(self.toolchain.work), "work").encode()).hexdigest()

    def _compile(self, source: Path, work: Path) -> list[tuple[str, ...]]:
        """Write ``unit.o`` with the machine code of all devices; return what ptxas says of each kernel."""
        clang, cubins, entries = self.toolchain.clang, [], []
        for architecture in self.features:
            ptx, cubin = work / "device.ptx", work / "device.cubin"
            prove.run(clang, *self.device(architecture), source, "-S", "-o", ptx)
            ptxas: list[str | Path] = [prove.CUDA / "bin" / "ptxas", f"--gpu-name=sm_{architecture}", "--verbose", ptx]
            entries += ENTRY.findall(prove.run("sh", "-c", 'exec "$@" 2>&1', "sh", *ptxas, f"--output-file={cubin}"))
            cubins.append((int(architecture.rstrip("af")), cubin.read_bytes()))
        image = work / "image.fatbin"
        image.write_bytes(fatbin.pack(cubins))
        embed: list[str | Path] = ["-Xclang", "-fcuda-include-gpubinary", "-Xclang", image]
        prove.run(clang, *self.host, *embed, "-c", source, "-o", work / "unit.o")
        return entries

    def link(self, compiled: Sequence[Compiled], library: Path) -> None:
        """Link the object files as one library, whose undefined symbols TensorFlow's own libraries have."""
        objects = [self.kept / f"{each.kept}.o" for each in compiled if not each.cause]
        prove.run(self.toolchain.clang, "-shared", "-fuse-ld=lld", *objects, prove.find_runtime(), "-o", library)


def count(entries: Sequence[tuple[str, ...]]) -> dict[str, Any]:
    """Return the number of kernels, the most registers that one uses, and the bytes that all of them spill."""
    return {
        "kernels": len(entries),
        "registers": max((int(registers) for *_, registers in entries), default=0),
        "spills": sum(int(spilled) for _, spilled, _ in entries),
    }


def shorten(words: str) -> str:
    """Return the first error in a compiler's output, without the folder of its file."""
    lines = words.splitlines()
    line = next((line for line in lines[1:] if re.search(r"\b(error|fatal)\b", line)), lines[-1])
    return re.sub(r"^/\S*/", "", line).strip()


def find_cause(words: str) -> str:
    return next((cause for cause, pattern in CAUSES.items() if pattern.search(words)), "compiler")


def write(path: Path, content: bytes) -> None:
    partial = path.with_name(f"{path.name}.{os.getpid()}")
    partial.write_bytes(content)
    partial.rename(path)


def choose_jobs() -> int:
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return max(1, min(count_cores(), free // MEMORY_PER_JOB))


def main(out: Path) -> int:
    """Compile the kernels that KERNELS asks for, print a line for each, and write ``kernels.json`` and the library.

    Exit codes: 0 all were tried, whatever became of them; 2 usage; 7 what compiled cannot be linked.
    """
    llvm, tensorflow = os.environ["LLVM_VERSION"], os.environ["TENSORFLOW_VERSION"]
    try:
        architectures = prove.parse_capabilities(os.environ["COMPUTE_CAPABILITIES"])
        sources = find_sources(SOURCE, os.environ.get("KERNELS", "all"))
    except ValueError as error:
        print(f"kernels: {error}", file=sys.stderr)
        return 2
    KEPT.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        toolchain = Toolchain(
            llvm=llvm, gcc=f"g++-{os.environ['GCC_VERSION']}", work=Path(folder), tensorflow=tensorflow, kept=prove.KEPT
        )
        try:
            features = {each: find_features(toolchain, each) for each in architectures}
            flags = list_flags(toolchain, SOURCE)
            kernels = Kernels(toolchain=toolchain, tree=SOURCE, flags=flags, features=features)
            compiled = sorted(compile_all(kernels, sources), key=lambda each: each.file)
            kernels.link(compiled, out / "libkernels.so")
        except ProofError as error:
            print(f"kernels: {error}", file=sys.stderr)
            return 7
        names = [f"sm_{name}" for name in architectures]
        report = {"schema": 1, "versions": prove.describe(toolchain), "architectures": names}
    report["kernels"] = [asdict(each) for each in compiled]
    (out / "kernels.json").write_text(json.dumps(report, indent=1) + "\n")
    return 0


def find_features(toolchain: Toolchain, architecture: str) -> list[str]:
    ptx = toolchain.work / "features.ptx"
    toolchain.compile(prove.HERE / "device.cu", ptx, *prove.list_plain_flags(architecture, "c++17"))
    return prove.list_features(toolchain, ptx.read_text())


def compile_all(kernels: Kernels, sources: Sequence[Path]) -> Iterator[Compiled]:
    """Compile all files, in an order in which the first of them say how long all take."""
    ordered = [sources[place] for place in scatter(len(sources))]
    with ThreadPoolExecutor(choose_jobs()) as pool:
        for number, done in enumerate(pool.map(kernels.compile, ordered), start=1):
            said = f"{done.cause}: {done.error}" if done.cause else f"{done.kernels} kernels in {done.seconds:.0f} s"
            print(f"kernels: {number} of {len(sources)} {done.file}: {said}", flush=True)
            yield done


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
