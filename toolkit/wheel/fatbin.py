"""Reads and writes NVIDIA's fat binaries: containers of machine code and PTX for several GPUs.

NVIDIA does not document them. The layout is the one that cuda-fatbin-decompression (N. Eiling, 2023) found; it was
checked against NVIDIA's libraries and TensorFlow's. A container has a header of 16 bytes, and one entry for each GPU: a
header of at least 64 bytes, and a payload that is padded to 8 bytes. clang and ``fatbinary`` 12 pack a payload as an
LZ4 block without a frame.
"""

import mmap
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Literal

import lz4.block

Data = bytes | bytearray | memoryview | mmap.mmap

MAGIC: Final = struct.pack("<I", 0xBA55ED50)
WRAPPER_MAGIC: Final = 0x466243B1
"""Begins each entry of ``.nvFatBinSegment``, whose second half is the address of a container."""

_CONTAINER = struct.Struct("<IHHQ")  # magic, version, bytes of this header, bytes that follow it
_ENTRY = struct.Struct("<HHIQIIHHI")
"""kind, attributes, bytes of this header, bytes of the payload with its padding, bytes of the payload, -, minor, major,
architecture."""
_PACKING = struct.Struct("<IIQQQ")  # -, -, flags, -, bytes of the unpacked payload
_HEADER: Final = _ENTRY.size + _PACKING.size
_KINDS: Final[dict[int, Literal["compute", "sm"]]] = {1: "compute", 2: "sm"}
_ATTRIBUTES: Final = 0x101
_LINUX_64: Final = 0x11
_LZ4: Final = 0x2000
_ZSTD: Final = 0x8000
_COMPATIBLE: Final = 0x1000000
_ABI_VERSION: Final = 8  # index into e_ident
_KNOWN_ABI: Final = (7, 8)  # of GPUs up to 9.0, and of later ones, by ptxas 12
_HIGHEST_RATIO: Final = 256  # LZ4 cannot pack better, so more is damage
_LARGEST: Final = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    start: int  # offset of its header in the data
    header: int  # bytes of the header
    size: int  # bytes of the payload, with padding
    kind: Literal["compute", "sm", ""]  # PTX, machine code, or something else
    architecture: int  # such as 75
    packed: int  # bytes of the payload without padding; 0 if it is not packed
    unpacked: int
    flags: int

    @property
    def name(self) -> str:
        """The GPU: ``sm_75`` for machine code, ``compute_75`` for PTX."""
        return f"{self.kind}_{self.architecture}" if self.kind else ""

    @property
    def end(self) -> int:
        return self.start + self.header + self.size


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    start: int  # offset of its header in the data
    size: int  # bytes of header and body
    entries: tuple[Entry, ...]

    @property
    def end(self) -> int:
        return self.start + self.size


def find_containers(data: Data, start: int = 0, end: int | None = None) -> Iterator[Container]:
    """Yield the containers between two offsets. Raises ValueError if one is damaged.

    Containers are padded to a boundary that differs between compilers, so the next one is searched for.
    """
    end = len(data) if end is None else end
    while (start := _find_magic(data, start, end)) >= 0:
        container = read_container(data, start, end)
        yield container
        start = container.end


def search_containers(data: Data, start: int, end: int) -> Iterator[Container]:
    """Yield the containers among other data, where the same four bytes may mean something else."""
    while (start := _find_magic(data, start, end)) >= 0:
        try:
            container = read_container(data, start, end)
        except ValueError:
            start += len(MAGIC)
            continue
        if container.entries:
            yield container
        start = container.end


def _find_magic(data: Data, start: int, end: int) -> int:
    return bytes(data[start:end]).find(MAGIC) if isinstance(data, memoryview) else data.find(MAGIC, start, end)


def read_container(data: Data, start: int, end: int | None = None) -> Container:
    """Return the container at an offset. Raises ValueError if there is none, or it is damaged."""
    end = len(data) if end is None else end
    if start < 0 or start + _CONTAINER.size > end:
        raise ValueError("a fat binary ends within its header")
    magic, _, header, size = _CONTAINER.unpack_from(data, start)
    if magic != 0xBA55ED50:
        raise ValueError("no fat binary begins there")
    if header < _CONTAINER.size or start + header + size > end:
        raise ValueError("a fat binary is longer than its section")
    entries = tuple(_read_entries(data, start + header, start + header + size))
    return Container(start=start, size=header + size, entries=entries)


def _read_entries(data: Data, start: int, end: int) -> Iterator[Entry]:
    while start + _ENTRY.size <= end:
        kind, _, header, size, packed, _, _, _, architecture = _ENTRY.unpack_from(data, start)
        if header < _ENTRY.size or start + header + size > end:
            raise ValueError("an entry of a fat binary is longer than its container")
        whole = header >= _HEADER
        _, _, flags, _, unpacked = _PACKING.unpack_from(data, start + _ENTRY.size) if whole else (0, 0, 0, 0, 0)
        yield Entry(
            start=start,
            header=header,
            size=size,
            kind=_KINDS.get(kind, ""),
            architecture=architecture,
            packed=packed,
            unpacked=unpacked,
            flags=flags,
        )
        start += header + size


def unpack(data: Data, entry: Entry) -> bytes:
    """Return the payload of an entry. Raises ValueError if it is damaged, or packed by something else than LZ4."""
    begin = entry.start + entry.header
    if entry.flags & _ZSTD:
        raise ValueError("an entry of a fat binary is packed by zstd, which is not read")
    if not entry.flags & _LZ4:
        return bytes(data[begin : begin + entry.size])
    if entry.packed > entry.size or entry.unpacked > min(entry.packed * _HIGHEST_RATIO, _LARGEST):
        raise ValueError("an entry of a fat binary names sizes that cannot be")
    try:
        packed = bytes(data[begin : begin + entry.packed])
        payload = bytes(lz4.block.decompress(packed, uncompressed_size=entry.unpacked))
    except (lz4.block.LZ4BlockError, MemoryError, OverflowError) as error:
        raise ValueError(f"an entry of a fat binary cannot be unpacked: {error}") from error
    if len(payload) != entry.unpacked:
        raise ValueError("an entry of a fat binary is shorter than it says")
    return payload


def pack_cubin(cubin: bytes, architecture: int, compatibility: bytes) -> bytes:
    """Return machine code as an entry, as ``fatbinary`` 13 writes it.

    ``compatibility``: the section ``.nv.compat``, which the header repeats from ABI version 8 on. Raises ValueError if
    the machine code has an ABI version that is not known.
    """
    version = cubin[_ABI_VERSION]
    if version not in _KNOWN_ABI:
        raise ValueError(f"machine code of ABI version {version} is not written, only {_KNOWN_ABI}")
    packed: bytes = lz4.block.compress(cubin, mode="high_compression", compression=12, store_size=False)
    size, flags, more, options = _pad(len(packed)), _LINUX_64 | _LZ4, b"", 0
    if version > min(_KNOWN_ABI):
        options = _HEADER
        more = struct.pack("<II", _HEADER + 8, len(compatibility)) + compatibility + b"\0"
        flags |= _COMPATIBLE
    header = _pad(_HEADER + len(more))
    head = _ENTRY.pack(2, _ATTRIBUTES, header, size, len(packed), options, version, 1, architecture)
    head += _PACKING.pack(0, 0, flags, 0, len(cubin)) + more
    return head.ljust(header, b"\0") + packed.ljust(size, b"\0")


def _pad(size: int) -> int:
    return -(-size // 8) * 8


def compose(entries: Iterable[bytes]) -> bytes:
    """Return a container. Machine code comes first, by architecture, and PTX last, as ``fatbinary`` orders them."""

    def rank(entry: bytes) -> tuple[bool, int]:
        return entry[:2] != b"\x02\x00", struct.unpack_from("<I", entry, _ENTRY.size - 4)[0]

    ordered = sorted(entries, key=rank)
    body = b"".join(ordered)
    return _CONTAINER.pack(0xBA55ED50, 1, _CONTAINER.size, len(body)) + body


def edit(raw: bytes, before: bytes, after: bytes) -> bytes:
    """Return an entry whose payload differs in one byte, by changing one byte of the entry.

    It keeps its size, so the fat binary around it stays as it is. Raises ValueError if the byte does not stand in the
    packed payload as it is, because an earlier one is repeated there.
    """
    places = [index for index, (old, new) in enumerate(zip(before, after, strict=True)) if old != new]
    entry = next(_read_entries(raw, 0, len(raw)))
    if len(places) == 1:
        context = before[max(0, places[0] - 8) : places[0] + 1]
        at = raw.find(context, entry.header) + len(context) - 1
        changed = raw[:at] + after[places[0] : places[0] + 1] + raw[at + 1 :]
        if len(changed) == len(raw) and unpack(changed, entry) == after:
            return changed
    raise ValueError("the text cannot be changed in its place")
