"""Finds the fat binaries of a library, and writes the library with others in their places.

The CUDA run time reaches a fat binary by a pointer in ``.nvFatBinSegment``, which the loader fills in by a relocation.
What MLIR generated lies in ``.rodata``, and one instruction (``lea rsi, [rip+displacement]``) loads its address for
cuModuleLoadData. Both are numbers in the file, so a fat binary that has grown can be moved: to room that others left,
or to a new segment at the file's end. Its program header takes the place of one that no loader needs for a library. The
segment has a section too, because tools such as ``cuobjdump`` look for GPU code by sections. A longer copy of the table
of sections stands before the segment.
"""

import mmap
import re
import shutil
import struct
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import IO, Any, Final, Literal, cast

from elftools.common.exceptions import ELFError
from elftools.construct.core import ConstructError
from elftools.elf.elffile import ELFFile
from elftools.elf.segments import Segment

from toolkit.wheel import fatbin
from toolkit.wheel.elf import SECTION, find_bare_segments
from toolkit.wheel.fatbin import Container

_CODE: Final = (SECTION, ".rodata")
"""Sections with fat binaries that can be read as they are."""
RELOCATABLE: Final = "__nv_relfatbin"
"""The section with parts that only nvlink makes into kernels."""

_SEGMENT_NAME: Final = "segment "
_WRAPPERS: Final = ".nvFatBinSegment"
_WRAPPER = struct.Struct("<IIQQ")
_RELATIONS: Final = ".rela.dyn"
_RELATION = struct.Struct("<QQq")  # address, type and symbol, addend
_RELATIVE: Final = 8  # R_X86_64_RELATIVE
_LOADS_ADDRESS = re.compile(rb"[\x48\x4c]\x8d[\x05\x0d\x15\x1d\x25\x2d\x35\x3d]")
_LOADS_ARGUMENT: Final = b"\x48\x8d\x35"  # lea rsi, the second argument of a function
_INSTRUCTION: Final = 7  # bytes of each of them; the last four are the displacement
_ALIGNMENT: Final = 16
_PAGE: Final = 0x1000
_SEGMENT = struct.Struct("<IIQQQQQQ")
_SECTION_HEADER = struct.Struct("<IIQQQQIIQQ")  # name, type, flags, address, offset, size, link, info, alignment, entry
_SIZE_FIELD: Final = 32  # where the size stands in the header of a section
_TABLE_FIELD: Final = 0x28  # where the header of an ELF file has the offset of the table of sections
_COUNT_FIELD: Final = 0x3C  # where it has the number of sections
_PROGRAM_DATA: Final = 1  # the type of sections with bytes that a program uses
_LOAD, _NOTE, _SELF, _READ = 1, 4, 6, 4
_TEXTS = re.compile(rb"\.version \d+\.\d+\s*\.target (\w+)")


@dataclass(frozen=True, kw_only=True)
class Reference:
    kind: Literal["relocation", "instruction"]
    field: int  # offset of the number in the file that holds or makes the address
    base: int  # what the processor adds to it; -1: the code must not be changed there


@dataclass(frozen=True, kw_only=True)
class FatBinary:
    """A fat binary of a library."""

    section: str
    address: int  # when the library is loaded at 0
    container: Container
    reference: Reference | None  # the only place that names its address; None: there is none, or there are several

    @property
    def start(self) -> int:
        return self.container.start


@dataclass(frozen=True, kw_only=True)
class Inventory:
    blobs: tuple[FatBinary, ...]
    relocatable: int  # parts of relocatable code, which are not read
    texts: tuple[str, ...]  # targets of PTX that stands as text in the library


@dataclass(frozen=True, kw_only=True)
class Move:
    blob: FatBinary
    start: int  # offset of the fat binary in the new file
    address: int
    size: int


@dataclass(frozen=True, kw_only=True)
class Layout:
    moves: tuple[Move, ...]
    segment: int  # bytes of the new segment; 0: there is none
    changed: tuple[tuple[int, int], ...]  # start and end of each range in which the two files may differ


@contextmanager
def mapping(path: Path) -> Iterator[mmap.mmap]:
    """Map a file to read it; files of more than a gigabyte are never copied into memory."""
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
        yield data


def take_inventory(data: mmap.mmap) -> Inventory:
    """Return the GPU code of an ELF library. Raises ValueError if the library is damaged."""
    try:
        elf = ELFFile(cast("IO[bytes]", data))
        # A graft adds a section of the same name as the compiler's.
        listed: list[tuple[str, Mapping[str, Any]]] = [(item.name, item.header) for item in elf.iter_sections()]
        bare = [segment for segment in elf.iter_segments() if _span(segment) in find_bare_segments(elf)]
        # A segment without a section is read as one, and its fat binaries among other data.
        listed += [
            (
                f"{_SEGMENT_NAME}{number}",
                {
                    "sh_type": "SHT_PROGBITS",
                    "sh_offset": segment["p_offset"],
                    "sh_addr": segment["p_vaddr"],
                    "sh_size": segment["p_filesz"],
                },
            )
            for number, segment in enumerate(bare)
        ]
        for name, header in listed:
            if header["sh_type"] != "SHT_NOBITS" and header["sh_offset"] + header["sh_size"] > len(data):
                raise ValueError(f"the section {name} is longer than the file")
    except (ELFError, ConstructError, UnicodeDecodeError, LookupError, TypeError, OverflowError, MemoryError) as error:
        # pyelftools does not validate its input, so a damaged file may raise any of these.
        raise ValueError(f"damaged ELF file: {error}") from error
    try:
        sections = dict(reversed(listed))  # the first of each name
        coded = [item for item in listed if item[0] in _CODE or item[0].startswith(_SEGMENT_NAME)]
        coded.sort(key=itemgetter(0))
        containers = [item for name, header in coded for item in _list_containers(data, name, header)]
        references = _find_references(data, sections, {address: item for _, address, item in containers})
        blobs = [
            FatBinary(section=name, address=address, container=item, reference=references.get(address))
            for name, address, item in containers
        ]
        relocatable, plain = sections.get(RELOCATABLE), sections.get(".rodata")
        return Inventory(
            blobs=tuple(blobs),
            relocatable=sum(1 for _ in _list_containers(data, RELOCATABLE, relocatable)) if relocatable else 0,
            texts=tuple(_list_texts(data, plain)) if plain else (),
        )
    except struct.error as error:
        raise ValueError(f"damaged ELF file: {error}") from error


def _span(segment: Segment) -> tuple[int, int]:
    return segment["p_offset"], segment["p_offset"] + segment["p_filesz"]


def _list_containers(data: mmap.mmap, name: str, section: Mapping[str, int]) -> Iterator[tuple[str, int, Container]]:
    start, shift = section["sh_offset"], section["sh_addr"] - section["sh_offset"]
    find = fatbin.find_containers if name in {SECTION, RELOCATABLE} else fatbin.search_containers
    for container in find(data, start, start + section["sh_size"]):
        yield name, container.start + shift, container


def _list_texts(data: mmap.mmap, section: Mapping[str, int]) -> Iterator[str]:
    """Yield the targets of PTX outside of fat binaries. What MLIR packed begins as such a text too."""
    start, end = section["sh_offset"], section["sh_offset"] + section["sh_size"]
    packed = [(container.start, container.end) for container in fatbin.search_containers(data, start, end)]
    for match in _TEXTS.finditer(data, start, end):
        if not any(first <= match.start() < last for first, last in packed):
            yield match[1].decode()


def _find_references(
    data: mmap.mmap, sections: Mapping[str, Mapping[str, int]], known: Mapping[int, Container]
) -> dict[int, Reference]:
    """Return where the address of each fat binary stands, if exactly one place names it."""
    references: dict[int, Reference] = {}
    named = Counter[int]()
    for address, reference in (*_find_relocations(data, sections), *_find_instructions(data, sections, known)):
        if address in known:
            named[address] += 1
            references[address] = reference
    return {
        address: reference for address, reference in references.items() if named[address] == 1 and reference.base >= 0
    }


def _find_relocations(data: mmap.mmap, sections: Mapping[str, Mapping[str, int]]) -> Iterator[tuple[int, Reference]]:
    if _RELATIONS not in sections:
        return
    table, wrappers = sections[_RELATIONS], sections.get(_WRAPPERS)
    start, size = table["sh_offset"], table["sh_size"] - table["sh_size"] % _RELATION.size
    with memoryview(data) as view, view[start : start + size] as relations:
        for index, (where, kind, addend) in enumerate(_RELATION.iter_unpack(relations)):
            if kind != _RELATIVE:
                continue
            inside = wrappers is not None and 0 <= where - wrappers["sh_addr"] < wrappers["sh_size"]
            # Elsewhere an address must not be changed: whoever reads it is not known.
            plain = inside and wrappers is not None and _is_wrapper(data, wrappers, where)
            field = start + index * _RELATION.size + _RELATION.size - 8
            yield addend, Reference(kind="relocation", field=field, base=0 if plain else -1)


def _is_wrapper(data: mmap.mmap, section: Mapping[str, int], where: int) -> bool:
    """Return whether an address is that of the pointer in a wrapper."""
    within = where - section["sh_addr"]
    start = section["sh_offset"] + within - within % _WRAPPER.size
    return within % _WRAPPER.size == 8 and _WRAPPER.unpack_from(data, start)[0] == fatbin.WRAPPER_MAGIC


def _find_instructions(
    data: mmap.mmap, sections: Mapping[str, Mapping[str, int]], known: Mapping[int, Container]
) -> Iterator[tuple[int, Reference]]:
    section = sections.get(".text")
    if section is None:
        return
    start, end = section["sh_offset"], section["sh_offset"] + section["sh_size"]
    shift = section["sh_addr"] - start
    read = struct.Struct("<i").unpack_from
    for match in _LOADS_ADDRESS.finditer(data, start, end - _INSTRUCTION + 3):
        place = match.start()
        base = place + shift + _INSTRUCTION
        address = base + read(data, place + 3)[0]
        if address in known:
            # Code that takes the address for another use is not known, and may read the bytes around it.
            fits = match[0] == _LOADS_ARGUMENT
            yield address, Reference(kind="instruction", field=place + 3, base=base if fits else -1)


def write(
    source: Path, target: Path, inventory: Inventory, contents: Mapping[int, bytes], words: Mapping[int, bytes]
) -> Layout:
    """Write a library with other fat binaries; return where they are now.

    ``contents``: the new fat binary by the offset of the old one. One that fits stays where it is, and the rest of its
    place is filled with zeros. ``words``: bytes that replace as many others, by their offset.

    A fat binary that has grown is moved. Raises ValueError if it cannot be moved, because its address stands in no
    place or in several, or if there is no room for another program header.
    """
    with mapping(source) as data:
        elf = ELFFile(cast("IO[bytes]", data))
        table, size = elf["e_phoff"], len(data)
        headers = [_SEGMENT.unpack_from(data, table + index * _SEGMENT.size) for index in range(elf["e_phnum"])]
        sections = _read_sections(data, elf)
        tail = next((header for header in headers if _is_tail(header, elf, size)), None)
    end = max(address + length for kind, _, _, address, _, _, length, _ in headers if kind == _LOAD)
    # An earlier graft's segment grows. Else there is a new one, behind the longer copy of the table of sections.
    copied = _round_up(size, 8)
    origin = _round_up(size, _ALIGNMENT) if tail else _round_up(copied + sections.longer, _PAGE)
    address = _round_up(end, _ALIGNMENT if tail else _PAGE)
    moves, segment = _place(inventory, contents, origin, address)
    pieces = [(blob.start, bytes(blob.container.size)) for blob in inventory.blobs if blob.start in contents]
    pieces += words.items()
    if segment:
        if tail:
            length = origin + segment - tail[2]
            others = [(*header[:5], length, length, header[7]) if header is tail else header for header in headers]
            pieces += sections.resize(tail[2], length)
        else:
            others = _replace_header(headers, (_LOAD, _READ, origin, address, address, segment, segment, _PAGE))
            pieces += sections.extend(copied, address, origin, segment)
        pieces.append((table, b"".join(_SEGMENT.pack(*header) for header in others)))
    changed = [(start, start + len(piece)) for start, piece in pieces if start < size]
    changed += [(size, origin + segment)] if segment else []
    pieces += [(move.start, contents[move.blob.start]) for move in moves]
    for move in moves:
        if move.blob.reference and move.address != move.blob.address:
            number = _redirect(move.blob.reference, move.address)
            pieces.append((move.blob.reference.field, number))
            changed.append((move.blob.reference.field, move.blob.reference.field + len(number)))
    shutil.copyfile(source, target)
    with target.open("r+b") as stream:
        stream.truncate(origin + segment if segment else size)
        for start, piece in pieces:
            stream.seek(start)
            stream.write(piece)
    return Layout(moves=tuple(moves), segment=segment, changed=tuple(sorted(changed)))


@dataclass(frozen=True, kw_only=True)
class _Sections:
    """The table of sections of a library, and what a section for new GPU code takes over from the compiler's."""

    start: int  # offset of the table
    headers: tuple[tuple[int, ...], ...]
    name: int  # where the name of the compiler's section stands among the names; -1: there is no such section
    flags: int

    @property
    def longer(self) -> int:
        """The bytes of the table with one more section; 0 if there is nothing that names it."""
        return (len(self.headers) + 1) * _SECTION_HEADER.size if self.name >= 0 else 0

    def extend(self, start: int, address: int, offset: int, size: int) -> list[tuple[int, bytes]]:
        """Return what to write where: a table at ``start`` with one section more, and the numbers that lead to it."""
        if self.name < 0:
            return []
        added = (self.name, _PROGRAM_DATA, self.flags, address, offset, size, 0, 0, _ALIGNMENT, 0)
        table = b"".join(_SECTION_HEADER.pack(*header) for header in (*self.headers, added))
        count = struct.pack("<H", len(self.headers) + 1)
        return [(_TABLE_FIELD, struct.pack("<Q", start)), (_COUNT_FIELD, count), (start, table)]

    def resize(self, offset: int, size: int) -> list[tuple[int, bytes]]:
        """Return what to write where: another size of the section at an offset, if there is one."""
        places = [index for index, header in enumerate(self.headers) if header[4] == offset and header[0] == self.name]
        return [(self.start + index * _SECTION_HEADER.size + _SIZE_FIELD, struct.pack("<Q", size)) for index in places]


def _read_sections(data: mmap.mmap, elf: ELFFile) -> _Sections:
    start, count = elf["e_shoff"], elf.num_sections()
    headers = tuple(_SECTION_HEADER.unpack_from(data, start + index * _SECTION_HEADER.size) for index in range(count))
    names = (index for index, section in enumerate(elf.iter_sections()) if section.name == SECTION)
    first = next(names, None)
    name, flags = (-1, 0) if first is None else (headers[first][0], headers[first][2])
    return _Sections(start=start, headers=headers, name=name, flags=flags)


def _is_tail(header: tuple[int, ...], elf: ELFFile, size: int) -> bool:
    """Return whether a program header is of a segment that an earlier graft put at the end of the file."""
    kind, _, offset, _, _, length, memory, _ = header
    added = (offset, offset + length) in [*find_bare_segments(elf), *_find_sections_of_grafts(elf)]
    return kind == _LOAD and added and offset + length == size and length == memory


def _find_sections_of_grafts(elf: ELFFile) -> list[tuple[int, int]]:
    """Return start and end of each section for GPU code but the compiler's."""
    coded = [section for section in elf.iter_sections() if section.name == SECTION]
    return [(section["sh_offset"], section["sh_offset"] + section["sh_size"]) for section in coded[1:]]


def _redirect(reference: Reference, address: int) -> bytes:
    """Return the bytes that name a new address. Raises ValueError if it is too far away for an instruction."""
    try:
        return struct.pack("<q" if reference.kind == "relocation" else "<i", address - reference.base)
    except struct.error as error:
        raise ValueError("the library is too large: an instruction reaches two gigabytes") from error


def _place(inventory: Inventory, contents: Mapping[int, bytes], origin: int, address: int) -> tuple[list[Move], int]:
    """Choose a place for each new fat binary; return them, and the bytes that the new segment needs.

    In the order of the file, each gets the first free room that is large enough: the old place of one that is moved,
    else the new segment, which begins at ``origin`` in the file and at ``address`` in memory.
    """
    moves, growing, used = [], [], 0
    for blob in inventory.blobs:
        if blob.start in contents:
            size = len(contents[blob.start])
            if size <= blob.container.size:
                moves.append(Move(blob=blob, start=blob.start, address=blob.address, size=size))
            else:
                growing.append((blob, size))
    room = _find_room([blob for blob, _ in growing if blob.section == SECTION])
    for blob, size in growing:
        if blob.reference is None:
            raise ValueError(f"the fat binary at {blob.start:#x} cannot be moved: no place or several have its address")
        free = next((place for place in room if place.stop - place.start >= size), None)
        if free is None:
            moves.append(Move(blob=blob, start=origin + used, address=address + used, size=size))
            used += _round_up(size, _ALIGNMENT)
        else:
            moves.append(Move(blob=blob, start=free.start, address=free.start + free.shift, size=size))
            free.start = min(_round_up(free.start + size, _ALIGNMENT), free.stop)
    return moves, used


@dataclass
class _Room:
    start: int  # start, stop: offsets in the file
    stop: int
    shift: int  # from an offset to an address


def _find_room(blobs: list[FatBinary]) -> list[_Room]:
    """Return the places of fat binaries that are moved; neighbours are joined."""
    places: list[_Room] = []
    for blob in blobs:
        if places and places[-1].stop == blob.start:
            places[-1].stop = blob.container.end
        else:
            places.append(_Room(blob.start, blob.container.end, blob.address - blob.start))
    return places


def _replace_header(headers: list[tuple[int, ...]], added: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Return the program headers with another segment after the others that are loaded, as loaders require.

    The new header takes the place of the one that describes the headers themselves. A loader computes that one if a
    library has none. If there is no such header, a note gives up its place. Raises ValueError if there is neither.
    """
    for kind in (_SELF, _NOTE):
        given = next((header for header in headers if header[0] == kind), None)
        if given is not None:
            kept = [header for header in headers if header is not given]
            last = max(index for index, header in enumerate(kept) if header[0] == _LOAD)
            return [*kept[: last + 1], added, *kept[last + 1 :]]
    raise ValueError("no program header of the library can be given up for another segment")


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


def find_offset(data: mmap.mmap, address: int) -> int:
    """Return the offset in the file of what is loaded at an address. Raises ValueError if nothing is loaded there."""
    elf = ELFFile(cast("IO[bytes]", data))
    for index in range(elf["e_phnum"]):
        kind, _, start, first, _, size, _, _ = _SEGMENT.unpack_from(data, elf["e_phoff"] + index * _SEGMENT.size)
        if kind == _LOAD and first <= address < first + size:
            return int(start + address - first)
    raise ValueError(f"nothing is loaded at {address:#x}")
