import stat
import zipfile
from pathlib import Path

import pytest
from wheelbuild import instructions

DISASSEMBLY = """\
library.so:\tfile format elf64-x86-64

<plain>:
\tpushq\t%rbp
\tmovaps\t%xmm0, %xmm1
\tverr\t%ax
\tvmcall
\ttzcntl\t%eax, %eax
\tretq

<jsimd_idct_islow_avx2>:
\tvpaddd\t%ymm0, %ymm1, %ymm2
\tvzeroupper

<_ZN5Eigen4gemmEv>:
\tvmulps\t%xmm0, %xmm1, %xmm2
\tkmovw\t%eax, %k1
\tmulxq\t%rax, %rbx, %rcx
\tvmovups\t%ymm0, (%rax)
"""


def make_wheel(folder: Path, text: str = DISASSEMBLY) -> tuple[Path, str]:
    """Make a wheel with a library and a cubin, and a disassembler that prints a text and fails for the cubin."""
    wheel = folder / "x.whl"
    with zipfile.ZipFile(wheel, "w") as made:
        made.writestr("x/library.so", b"\x7fELF\x02\x01" + bytes(12) + b"\x3e\x00" + bytes(99))
        made.writestr("x/kernel.cubin", b"\x7fELF\x02\x01" + bytes(12) + b"\xbe\x00" + bytes(99))
        made.writestr("x/empty.py", b"")
    (folder / "text").write_text(text)
    program = folder / "objdump"
    program.write_text(
        f'#!/bin/sh\nfor last; do :; done\ncase $last in *.so) cat "{folder}/text" ;; *) exit 1 ;; esac\n'
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return wheel, str(program)


def test_each_function_outside_of_dispatched_kernels_is_named(tmp_path: Path) -> None:
    found = instructions.inspect(*make_wheel(tmp_path))
    assert found.refused == {"library.so: _ZN5Eigen4gemmEv": 4}
    assert found.instructions == 6
    lines = list(instructions.explain(found))
    assert lines[0].endswith("chosen by cpuid: 1")
    assert lines[1] == "wheel: instructions: 4 in library.so: _ZN5Eigen4gemmEv"


def test_kernels_that_are_chosen_by_cpuid_are_let_pass(tmp_path: Path) -> None:
    found = instructions.inspect(*make_wheel(tmp_path, DISASSEMBLY.partition("<_ZN5Eigen")[0]))
    assert (found.instructions, found.refused, list(instructions.explain(found))) == (2, {}, [])


@pytest.mark.parametrize(
    ("instruction", "beyond"),
    [
        ("vaddps\t%ymm0", True),
        ("vmread\t%rax", False),
        ("kandnq\t%k1", True),
        ("tileloadd\t(%rax)", True),
        ("blsmskl\t%eax", True),
        ("pextl\t%eax", True),
        ("shlxq\t%rax", True),
        ("addps\t%xmm0", False),
    ],
)
def test_instructions_that_need_more_are_told_from_the_others(instruction: str, beyond: bool) -> None:
    assert bool(instructions.count([f"\t{instruction}, %rdx\n"])) is beyond
