"""The few facts of an ELF file that say where a library looks for others, and which GPU a cubin is for."""

import struct
from dataclasses import dataclass
from pathlib import Path

_PT_LOAD, _PT_DYNAMIC = 1, 2
_DT_STRTAB, _DT_RPATH, _DT_RUNPATH = 5, 15, 29
_EM_CUDA = 190


@dataclass(frozen=True)
class Segment:
    """A program header: kind, and where its bytes lie in the file and in memory."""

    kind: int
    offset: int
    address: int
    size: int


def read_search_path(library: Path) -> list[Path]:
    """The folders of a library's RUNPATH (or RPATH), with ``$ORIGIN`` put in; those that do not exist are left out.

    Raises:
        ValueError: not a 64-bit little-endian ELF file.
        OSError: it cannot be read.
    """
    with library.open("rb") as stream:
        segments = _segments(stream.read(1 << 16))
        dynamic = next((item for item in segments if item.kind == _PT_DYNAMIC), None)
        if dynamic is None:
            return []
        stream.seek(dynamic.offset)
        raw = stream.read(dynamic.size)
        tags = [struct.unpack_from("<QQ", raw, at) for at in range(0, len(raw) - 15, 16)]
        strings = next(value for tag, value in tags if tag == _DT_STRTAB)
        paths = {tag: value for tag, value in tags if tag in {_DT_RPATH, _DT_RUNPATH}}
        offset = paths.get(_DT_RUNPATH, paths.get(_DT_RPATH))
        if offset is None:
            return []
        stream.seek(_file_offset(segments, strings + offset))
        text = stream.read(1 << 16).partition(b"\0")[0].decode()
    origin = str(library.resolve().parent)
    folders = [Path(part.replace("$ORIGIN", origin).replace("${ORIGIN}", origin)) for part in text.split(":") if part]
    return list(dict.fromkeys(folder.resolve() for folder in folders if folder.is_dir()))


def read_cubin_architecture(cubin: bytes) -> int:
    """The ``XY`` of ``sm_XY`` for which a cubin was assembled: the low byte of its ELF flags.

    Raises:
        ValueError: not a cubin.
    """
    if cubin[:4] != b"\x7fELF" or struct.unpack_from("<H", cubin, 18)[0] != _EM_CUDA:
        raise ValueError("not a CUDA ELF file")
    flags: int = struct.unpack_from("<I", cubin, 48)[0]
    return flags & 0xFF


def _segments(head: bytes) -> list[Segment]:
    if head[:6] != b"\x7fELF\x02\x01":
        raise ValueError("not a 64-bit little-endian ELF file")
    table = struct.unpack_from("<Q", head, 32)[0]
    size, count = struct.unpack_from("<HH", head, 54)
    segments = []
    for index in range(count):
        kind, _, offset, address, _, length = struct.unpack_from("<IIQQQQ", head, table + index * size)
        segments.append(Segment(kind, offset, address, length))
    return segments


def _file_offset(segments: list[Segment], address: int) -> int:
    for item in segments:
        if item.kind == _PT_LOAD and item.address <= address < item.address + item.size:
            return item.offset + address - item.address
    raise ValueError(f"address {address:#x} lies in no segment")
