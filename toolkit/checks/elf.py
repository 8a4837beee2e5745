"""Reads the dynamic section of 64-bit ELF files: search path, and versions of symbols.

Formats: System V ABI (gABI), chapters 4 and 5, and the Linux Standard Base, "Symbol Versioning".
"""

import re
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

_PT_LOAD, _PT_DYNAMIC = 1, 2
_DT_NEEDED, _DT_STRTAB, _DT_RPATH, _DT_RUNPATH = 1, 5, 15, 29
_DT_VERDEF, _DT_VERNEED = 0x6FFFFFFC, 0x6FFFFFFE
_HEADER_BYTES, _SEGMENT_BYTES = 64, 56
_DYNAMIC_BYTES = 1 << 20
_DAMAGED = (struct.error, UnicodeDecodeError, StopIteration, OverflowError, KeyError)


@dataclass(frozen=True)
class Segment:
    kind: int
    offset: int
    address: int
    size: int


def read_search_path(library: Path) -> list[Path]:
    """Return the folders of a library's RUNPATH (or RPATH) that exist. Raises ValueError: it is no 64-bit ELF file."""
    try:
        with library.open("rb") as stream:
            dynamic = _Dynamic(stream)
            offset = dynamic.tags.get(_DT_RUNPATH, dynamic.tags.get(_DT_RPATH))
            text = "" if offset is None else dynamic.read_string(offset)
    except _DAMAGED as error:
        raise ValueError(f"{library} is a damaged ELF file") from error
    origin = str(library.resolve().parent)
    folders = [Path(part.replace("$ORIGIN", origin).replace("${ORIGIN}", origin)) for part in text.split(":") if part]
    return list(dict.fromkeys(folder.resolve() for folder in folders if folder.is_dir()))


def read_needed(library: Path) -> list[str]:
    """Return the names of the libraries that a library needs itself. Raises ValueError: it is no 64-bit ELF file."""
    try:
        with library.open("rb") as stream:
            dynamic = _Dynamic(stream)
            return [dynamic.read_string(value) for tag, value in dynamic.entries if tag == _DT_NEEDED]
    except _DAMAGED as error:
        raise ValueError(f"{library} is a damaged ELF file") from error


def read_needed_versions(library: Path) -> dict[str, str]:
    """Return a library's newest needed version by family: ``{"GLIBC": "2.38"}``. Raises ValueError: no 64-bit ELF."""
    return _read_versions(library, _DT_VERNEED)


def read_defined_versions(library: Path) -> dict[str, str]:
    """Return the newest version of each family of symbols that a library defines. Raises ValueError as above."""
    return _read_versions(library, _DT_VERDEF)


def require_whole(library: Path) -> None:
    """Refuse a truncated library: dlopen would end with SIGBUS. Raises ValueError, or OSError: it cannot be read."""
    with library.open("rb") as stream:
        segments = _segments(stream.read(1 << 16))
    have, want = library.stat().st_size, max((item.offset + item.size for item in segments), default=0)
    if have < want:
        raise ValueError(f"{library} is cut short: {have} bytes of at least {want}")


class _Dynamic:
    """The dynamic section of an open file; without one, no tags."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._segments = _segments(stream.read(1 << 16))
        found = next((item for item in self._segments if item.kind == _PT_DYNAMIC), None)
        self.entries: list[tuple[int, int]] = []
        if found:
            stream.seek(found.offset)
            raw = stream.read(min(found.size, _DYNAMIC_BYTES))
            self.entries = [struct.unpack_from("<QQ", raw, at) for at in range(0, len(raw) - 15, 16)]
        self.tags = dict(self.entries)

    def read(self, address: int, size: int) -> bytes:
        self._stream.seek(_file_offset(self._segments, address))
        return self._stream.read(size)

    def read_string(self, offset: int) -> str:
        return self.read(self.tags[_DT_STRTAB] + offset, 1 << 16).partition(b"\0")[0].decode()

    def walk(self, address: int, layout: str) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Yield address and fields of each entry of a list, whose last field is the distance to the next, or 0."""
        while True:
            fields = struct.unpack(layout, self.read(address, struct.calcsize(layout)))
            yield address, fields
            if not fields[-1]:
                return
            address += fields[-1]


def _read_versions(library: Path, tag: int) -> dict[str, str]:
    try:
        with library.open("rb") as stream:
            dynamic = _Dynamic(stream)
            return _find_newest(_list_names(dynamic, tag) if tag in dynamic.tags else ())
    except _DAMAGED as error:
        raise ValueError(f"{library} is a damaged ELF file") from error


def _list_names(dynamic: _Dynamic, tag: int) -> Iterator[str]:
    if tag == _DT_VERNEED:
        for address, (_, _, _, first, _) in dynamic.walk(dynamic.tags[tag], "<HHIII"):
            for _, (_, _, _, name, _) in dynamic.walk(address + first, "<IHHII"):
                yield dynamic.read_string(name)
    else:
        for address, (*_, first, _) in dynamic.walk(dynamic.tags[tag], "<HHHHIII"):
            yield dynamic.read_string(struct.unpack("<I", dynamic.read(address + first, 4))[0])


def _find_newest(names: Iterable[str]) -> dict[str, str]:
    found: dict[str, tuple[int, ...]] = {}
    for name in names:
        match = re.fullmatch(r"([A-Z]+)_(\d+(?:\.\d+)*)", name)
        if match:
            version = tuple(map(int, match[2].split(".")))
            found[match[1]] = max(found.get(match[1], ()), version)
    return {name: ".".join(map(str, version)) for name, version in found.items()}


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
