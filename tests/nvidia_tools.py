"""NVIDIA's own packer and readers of GPU code: fatbinary, cuobjdump and nvdisasm. They run without a GPU."""

import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

FOLDER = os.environ.get("TOOLKIT_NVIDIA_TOOLS", "")
"""The folder of the programs; .ci/requirements/nvidia-tools.txt locks the packages that bring them."""

needed = pytest.mark.skipif(not FOLDER, reason="TOOLKIT_NVIDIA_TOOLS names no folder with NVIDIA's tools")

_PTX = """.version 8.5
.target sm_75
.address_size 64
.visible .entry twice(.param .u64 twice_0)
{
.reg .b32 %r<3>;
.reg .b64 %rd<3>;
ld.param.u64 %rd1, [twice_0];
cvta.to.global.u64 %rd2, %rd1;
ld.global.u32 %r1, [%rd2];
add.s32 %r2, %r1, %r1;
st.global.u32 [%rd2], %r2;
ret;
}
"""


_LIBRARY = """.section .nv_fatbin,"a",@progbits
.p2align 4
first:
.incbin "packed.fatbin"
.p2align 4
second:
.incbin "packed.fatbin"
.section .nvFatBinSegment,"aw",@progbits
.p2align 3
.int 0x466243B1, 1
.quad first, 0
.int 0x466243B1, 1
.quad second, 0
.section .note.GNU-stack,"",@progbits
"""


def run(name: str, *words: str | Path, folder: Path | None = None) -> str:
    done = subprocess.run([f"{FOLDER}/{name}", *words], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def assemble(folder: Path, architectures: Sequence[int]) -> dict[int, bytes]:
    """Return the machine code of a small kernel by its SM number, and leave each in a file such as ``75.cubin``."""
    (folder / "kernel.ptx").write_text(_PTX)
    for number in architectures:
        run("ptxas", f"-arch=sm_{number}", "-o", folder / f"{number}.cubin", folder / "kernel.ptx")
    return {number: (folder / f"{number}.cubin").read_bytes() for number in architectures}


def pack(folder: Path, architectures: Sequence[int], *options: str) -> bytes:
    """Return the fat binary that fatbinary makes of the files of :func:`assemble`."""
    images = [f"--image3=kind=elf,sm={number},file={folder / f'{number}.cubin'}" for number in architectures]
    run("fatbinary", f"--create={folder / 'nvidia.fatbin'}", *options, *images)
    return (folder / "nvidia.fatbin").read_bytes()


def link(folder: Path, packed: bytes) -> Path:
    """Return a library that holds a fat binary twice, linked by the machine's compiler."""
    (folder / "packed.fatbin").write_bytes(packed)
    (folder / "library.s").write_text(_LIBRARY)
    subprocess.run(["cc", "-shared", "-nostdlib", "-o", "a.so", "library.s"], cwd=folder, check=True)
    return folder / "a.so"


def list_code(path: Path) -> list[str]:
    """Return the architecture of each piece of machine code that cuobjdump lists, in its order.

    Of a library it reads the first section ``.nv_fatbin`` alone, and of a file the fat binaries that follow each other.
    """
    return re.findall(r"ELF file +\d+: \S+\.(sm_\w+)\.cubin", run("cuobjdump", "--list-elf", path))


def extract(path: Path, folder: Path, pattern: str) -> list[Path]:
    """Let cuobjdump extract the machine code whose name has a pattern, and return the files."""
    folder.mkdir()
    run("cuobjdump", "--extract-elf", pattern, path, folder=folder)
    return sorted(folder.iterdir())
