"""Makes small wheels with the GPU code of TensorFlow's: libraries, fat binaries, PTX. `assembler.py` assembles it."""

import struct
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.unit.graft.assembler import make_cubin
from tests.unit.wheel.maker import make_build_info, make_wheel
from toolkit.wheel import fatbin, inspection
from toolkit.wheel.wheel_folder import FinishedWheel

ROOT = Path(__file__).parents[3]
Graft = Callable[..., FinishedWheel]
"""Makes the graft for some cards, as the fixture of this name does."""

WARNING = b"CUDA kernels will be \0jit-compiled from PTX, which could take 30 minutes or longer.\0"
LIBRARY = "tensorflow/libtensorflow_cc.so.2"
TEXT = "PTX text in a library: .version 4.0\n.target sm_50\n"


def make_ptx(*kernels: str, target: str = "sm_90", version: str = "8.5") -> bytes:
    """Return PTX whose kernels take a pointer and an array of 8 bytes each."""
    head = f"//\n.version {version}\n.target {target}\n.address_size 64\n"
    bodies = [
        f".visible .entry {name}(\n.param .u64 {name}_0,\n.param .align 8 .b8 {name}_1[8]\n)\n{{\nret;\n}}\n"
        for name in kernels
    ]
    return (head + "".join(bodies)).encode()


def pack_ptx(text: bytes, architecture: int = 90) -> bytes:
    """Return PTX as an entry, as ``fatbinary`` packs it."""
    import lz4.block

    packed = lz4.block.compress(text + b"\0", store_size=False)
    size = -(-len(packed) // 8) * 8
    head = struct.pack("<HHIQIIHHI", 1, 0x101, 80, size, len(packed), 64, 5, 8, architecture)
    return (head + struct.pack("<IIQQQ", 0, 0, 0x2011, 0, len(text) + 1)).ljust(80, b"\0") + packed.ljust(size, b"\0")


def make_container(*kernels: str, cubins: Sequence[int] = (80, 89), target: str = "sm_90", ptx: bool = True) -> bytes:
    code = dict.fromkeys(kernels, (8, 8))
    entries = [fatbin.pack_cubin(make_cubin(each, code, {"table": 64}), each, b"") for each in cubins]
    return fatbin.compose([*entries, *([pack_ptx(make_ptx(*kernels, target=target))] if ptx else [])])


def make_library(wrapped: Sequence[bytes], loaded: Sequence[bytes] = (), *, relocatable: bool = False) -> bytes:
    """Return a library whose fat binaries are wrapped for the CUDA run time, or loaded by an instruction.

    Addresses are offsets, and one segment has the whole file.
    """
    rodata, places = TEXT.encode() + WARNING, []
    for blob in loaded:
        rodata += bytes(-len(rodata) % 16 + 16)
        places.append(len(rodata))
        rodata += blob
    section = b"".join(wrapped)
    sections: list[tuple[bytes, int, bytes]] = [(b".rodata", 1, rodata), (b".nv_fatbin", 1, section)]
    start = 64 + 4 * 56
    rodata_at = start + (-start % 64)
    fatbin_at = rodata_at + len(rodata) + (-len(rodata) % 64)
    code_at = fatbin_at + len(section) + (-len(section) % 64)
    code = b"\x90" * 5
    for place in places:
        end = code_at + len(code) + 7
        code += b"\x48\x8d\x35" + struct.pack("<i", rodata_at + place - end) + b"\xe8\0\0\0\0"
    rela_at = code_at + len(code) + (-len(code) % 64)
    wrapper_at = rela_at + 24 * len(wrapped) + (-24 * len(wrapped) % 64)
    relations = wrappers = b""
    at = fatbin_at
    for index, blob in enumerate(wrapped):
        relations += struct.pack("<QQq", wrapper_at + 24 * index + 8, 8, at)
        wrappers += struct.pack("<IIQQ", 0x466243B1, 1, 0, 0)
        at += len(blob)
    sections += [(b".text", 1, code), (b".rela.dyn", 4, relations), (b".nvFatBinSegment", 1, wrappers)]
    sections += [(b"__nv_relfatbin", 1, fatbin.compose([pack_ptx(make_ptx("part"))]))] if relocatable else []
    return _lay_out(sections, start)


def _lay_out(sections: Sequence[tuple[bytes, int, bytes]], start: int) -> bytes:
    body, names, headers = bytes(-start % 64), b"\0", [bytes(64)]
    for name, kind, content in [*sections, (b".shstrtab", 3, b"")]:
        body += bytes(-(start + len(body)) % 64)
        place, at = start + len(body), len(names)
        names += name + b"\0"
        data = names if name == b".shstrtab" else content
        headers.append(
            struct.pack("<IIQQQQIIQQ", at, kind, 2, place, place, len(data), 0, 0, 8, 24 if kind == 4 else 0)
        )
        body += data
    body += bytes(-(start + len(body)) % 8)
    table, count = start + len(body), len(headers)
    size = table + 64 * count
    programs = [
        (6, 4, 64, 64, 64, 4 * 56, 4 * 56, 8),
        (1, 5, 0, 0, 0, size, size, 0x1000),
        (1, 6, 0, 0x200000, 0x200000, 64, 0x5000, 0x1000),
        (0x6474E551, 6, 0, 0, 0, 0, 0, 16),
    ]
    head = b"\x7fELF\x02\x01\x01" + bytes(9)
    head += struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, table, 0, 64, 56, 4, 64, count, count - 1)
    return head + b"".join(struct.pack("<IIQQQQQQ", *each) for each in programs) + body + b"".join(headers)


def make_tensorflow(
    folder: Path,
    library: bytes | None = None,
    *,
    version: str = "2.21.0",
    cuda: str = "12.5.1",
    tag: str = "cp311-cp311-linux_x86_64",
    requires: Sequence[str] = (),
) -> Path:
    if library is None:
        library = make_library([make_container("one", "two"), make_container("three")], [make_container("four")])
    files = {
        LIBRARY: library,
        "tensorflow/__init__.py": "",
        "tensorflow/libplain.so": make_library([]),
        inspection.BUILD_INFO: make_build_info("sm_80", "sm_89", "compute_90", cuda=cuda),
    }
    return make_wheel(folder, version=version, tag=tag, files=files, requires=requires)


def write_ptxas(folder: Path, *, before: str = "") -> Path:
    """Write the stand-in of ptxas. ``before``: code that it runs first, to fail or to wait."""
    path = folder / "ptxas"
    # The shell finds the interpreter, because the first line of a program allows no space in a path.
    lines = ["#!/bin/sh", f'\'\'\'exec\' "{sys.executable}" -S "$0" "$@"', "'''", "import sys"]
    lines += [f"sys.path[:0] = {[str(ROOT), *sys.path]!r}", before]
    lines += ["from tests.unit.graft.assembler import run_ptxas", "run_ptxas(sys.argv[1:])", ""]
    path.write_text("\n".join(lines), encoding="utf-8")
    path.chmod(0o755)
    return path
