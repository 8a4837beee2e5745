"""Makes cubins, and is the stand-in of ptxas. It loads little, because each test starts it several times.

The stand-in refuses what ptxas refuses: a GPU that it does not know, PTX for one GPU alone, PTX of a later GPU or of a
version that is too new. It is kinder than ptxas in that it does not read the bodies of kernels.
"""

import re
import struct
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path


def make_cubin(
    architecture: int, kernels: Mapping[str, Sequence[int]], variables: Mapping[str, int] | None = None
) -> bytes:
    """Return machine code with kernels, each by the bytes of its parameters, and global variables."""
    modern = architecture >= 100
    strings, symbols = b"\0", b"\0" * 24
    sections = [(".strtab", 3, b""), (".symtab", 2, b"")]
    for name, parameters in kernels.items():
        symbols += struct.pack("<IBBHQQ", len(strings), 0x12, 0x10, 0, 0, 128)
        strings += name.encode() + b"\0"
        told = b"".join(
            struct.pack("<BBHIHHI", 4, 0x17, 12, 0, ordinal, 8 * ordinal, size << 18)
            for ordinal, size in reversed(list(enumerate(parameters)))
        )
        sections += [(f".text.{name}", 1, bytes(128)), (f".nv.info.{name}", 0x70000000, b"\x03\x1b\xff\0" + told)]
    for name, size in (variables or {}).items():
        symbols += struct.pack("<IBBHQQ", len(strings), 0x11, 0, 0, 0, size)
        strings += name.encode() + b"\0"
    sections += [(".nv.compat", 0x70000086, b"\x02\x02\x05\0\x02\x03\x05\0")] if modern else []
    sections[:2] = [(".strtab", 3, strings), (".symtab", 2, symbols)]
    header = b"\x7fELF\x02\x01\x01" + (b"\x41\x08" if modern else b"\x33\x07") + bytes(7)
    flags = architecture << 8 if modern else architecture
    return _assemble_elf(header, 190, flags, sections)


def _assemble_elf(start: bytes, machine: int, flags: int, sections: Sequence[tuple[str, int, bytes]]) -> bytes:
    names, body, headers = b"\0", b"", [bytes(64)]
    for name, kind, content in [*sections, (".shstrtab", 3, None)]:
        at = len(names)
        names += name.encode() + b"\0"
        data = names if content is None else content
        body += bytes(-len(body) % 8)
        headers.append(struct.pack("<IIQQQQIIQQ", at, kind, 0, 0, 64 + len(body), len(data), 0, 0, 8, 0))
        body += data
    body += bytes(-len(body) % 8)
    count = len(headers)
    head = start + struct.pack(
        "<HHIQQQIHHHHHH", 2, machine, 1, 0, 0, 64 + len(body), flags, 64, 0, 0, 64, count, count - 1
    )
    return head + body + b"".join(headers)


def run_ptxas(argv: list[str]) -> None:
    options, source, flag, target = argv[:-3], Path(argv[-3]), argv[-2], Path(argv[-1])
    found = re.fullmatch(r"-arch=sm_(90|100|103|120|121)", options[-1])
    if found is None or flag != "-o" or options[:-1] != ["-O3"]:
        sys.exit(f"ptxas fatal   : Value '{options[-1]}' is not defined for option 'gpu-name'")
    architecture, text = int(found[1]), source.read_text()
    version = re.search(r"^\.version (\d+)\.(\d+)$", text, re.MULTILINE)
    asked = re.search(r"^\.target sm_(\d+)([af]?)\s*$", text, re.MULTILINE)
    if version is None or (int(version[1]), int(version[2])) > (8, 7):
        sys.exit("ptxas fatal   : Unsupported .version; current version is '8.7'")
    if asked is None or asked[2] or int(asked[1]) > architecture or "refuse me" in text:
        sys.exit("ptxas fatal   : Ptx assembly aborted due to errors")
    kernels = {
        match[1]: [8, *map(int, re.findall(r"\[(\d+)\]", match[2]))]
        for match in re.finditer(r"\.entry (\w+)\((.*?)\)", text, re.DOTALL)
    }
    target.write_bytes(make_cubin(architecture, kernels, {"table": 64}))
