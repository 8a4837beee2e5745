"""The few facts of an ELF file that say where a library looks for others, and which GPU a cubin is for."""

import struct
from dataclasses import dataclass
from pathlib import Path

_PT_LOAD, _PT_DYNAMIC = 1, 2
_DT_STRTAB, _DT_RPATH, _DT_RUNPATH = 5, 15, 29
_EM_CUDA = 190
_ABI_VERSION = 8  # index into e_ident
_HEADER_BYTES, _SEGMENT_BYTES = 64, 56
_DYNAMIC_BYTES = 1 << 20


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
    try:
        text = _read_dynamic_path(library)
    except (struct.error, UnicodeDecodeError, StopIteration, OverflowError) as error:
        raise ValueError(f"{library} is a damaged ELF file") from error
    origin = str(library.resolve().parent)
    folders = [Path(part.replace("$ORIGIN", origin).replace("${ORIGIN}", origin)) for part in text.split(":") if part]
    return list(dict.fromkeys(folder.resolve() for folder in folders if folder.is_dir()))


def require_whole(library: Path) -> None:
    """Refuse a file that ends before its own segments do: dlopen would map it and die of SIGBUS.

    Raises:
        ValueError: it is cut short, or is no ELF file.
        OSError: it cannot be read.
    """
    with library.open("rb") as stream:
        segments = _segments(stream.read(1 << 16))
    have, want = library.stat().st_size, max((item.offset + item.size for item in segments), default=0)
    if have < want:
        raise ValueError(f"{library} is cut short: {have} bytes of at least {want}")


def read_cubin_architecture(cubin: bytes) -> int:
    """The ``XY`` of ``sm_XY`` for which a cubin was assembled.

    It is the low byte of the ELF flags up to ABI version 7, and the byte above it from version 8, of CUDA 13 (seen by
    assembling for many with ptxas 12.6.68 and 13.0.88).

    Raises:
        ValueError: not a cubin.
    """
    if len(cubin) < _HEADER_BYTES or cubin[:4] != b"\x7fELF" or struct.unpack_from("<H", cubin, 18)[0] != _EM_CUDA:
        raise ValueError("not a CUDA ELF file")
    flags: int = struct.unpack_from("<I", cubin, 48)[0]
    return (flags >> 8 if cubin[_ABI_VERSION] >= 8 else flags) & 0xFF


def _read_dynamic_path(library: Path) -> str:
    with library.open("rb") as stream:
        segments = _segments(stream.read(1 << 16))
        dynamic = next((item for item in segments if item.kind == _PT_DYNAMIC), None)
        if dynamic is None:
            return ""
        stream.seek(dynamic.offset)
        raw = stream.read(min(dynamic.size, _DYNAMIC_BYTES))
        tags = [struct.unpack_from("<QQ", raw, at) for at in range(0, len(raw) - 15, 16)]
        strings = next(value for tag, value in tags if tag == _DT_STRTAB)
        paths = {tag: value for tag, value in tags if tag in {_DT_RPATH, _DT_RUNPATH}}
        offset = paths.get(_DT_RUNPATH, paths.get(_DT_RPATH))
        if offset is None:
            return ""
        stream.seek(_file_offset(segments, strings + offset))
        return stream.read(1 << 16).partition(b"\0")[0].decode()


def _segments(head: bytes) -> list[Segment]:
    if head[:6] != b"\x7fELF\x02\x01":
        raise ValueError("not a 64-bit little-endian ELF file")
    if len(head) < _HEADER_BYTES:
        raise ValueError("the ELF file ends within its header")
    table = struct.unpack_from("<Q", head, 32)[0]
    size, count = struct.unpack_from("<HH", head, 54)
    if size < _SEGMENT_BYTES or table + size * count > len(head):
        raise ValueError("the ELF file ends before its program headers do")
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
