"""Compares a library with the original: what may differ, and what each new kernel must have.

Everything is read again from the two files. A fat binary is found as the program finds it: by the address that the
library names, and not by the place that was planned.
"""

import mmap
import re
import struct
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import IO, Final, cast

from elftools.elf.elffile import ELFFile

from toolkit.base.errors import CheckError
from toolkit.graft import assembly, cubin, library
from toolkit.graft.library import FatBinary, Inventory, Layout
from toolkit.wheel import fatbin
from toolkit.wheel.elf import SECTION
from toolkit.wheel.fatbin import Container, Entry

_PIECE: Final = 1 << 24
_ENTRIES = re.compile(rb"\.entry\s+([\w$]+)")


@dataclass(frozen=True, kw_only=True)
class Proven:
    kernels: int  # kernels in the new machine code
    general: int  # PTX texts that were for one GPU alone, and now are for later ones too


def prove(
    name: str,
    before: mmap.mmap,
    after: mmap.mmap,
    inventory: Inventory,
    layout: Layout,
    *,
    added: Mapping[int, frozenset[int]],
    kept: Collection[int] | None,
    words: Mapping[int, bytes],
) -> Proven:
    """Check a library. Raises CheckError if it differs where it must not, or new machine code does not fit its PTX.

    ``inventory``: of the original. ``layout``: of what was written. ``added``: the architectures for which each fat
    binary has new machine code, by the offset of the old one. ``kept``: the architectures whose old machine code must
    still be there as it was, or None for all of them. ``words``: text that must stand at these offsets.
    """
    try:
        _compare_outside(before, after, layout)
        _compare_sections(before, after)
        _compare_words(before, after, words)
        moved = {move.blob.start: move for move in layout.moves}
        kernels = general = 0
        for blob in inventory.blobs:
            move = moved.get(blob.start)
            if move is None:
                continue
            place = _follow(after, blob, move.address)
            count, changed = _compare(before, after, blob.container, place, added=added[blob.start], kept=kept)
            kernels, general = kernels + count, general + changed
    except (ValueError, struct.error) as error:
        raise CheckError(
            f"the rewritten library {name} failed the comparison with its original",
            why=str(error),
            remedy="please report it; the wheel was not written",
        ) from error
    return Proven(kernels=kernels, general=general)


def _compare_outside(before: mmap.mmap, after: mmap.mmap, layout: Layout) -> None:
    """Raise ValueError if the files differ anywhere but in the ranges that were changed on purpose."""
    start = 0
    with memoryview(before) as old, memoryview(after) as new:
        for first, last in (*layout.changed, (len(old), len(old))):
            while start < min(first, len(old)):
                stop = min(start + _PIECE, first, len(old))
                if old[start:stop] != new[start:stop]:
                    raise ValueError(f"bytes between {start:#x} and {stop:#x} differ, which hold no GPU code")
                start = stop
            start = max(start, last)
    if not layout.segment and len(before) != len(after):
        raise ValueError("its length differs")


def _compare_sections(before: mmap.mmap, after: mmap.mmap) -> None:
    """Raise ValueError if the table of sections differs by more than a section that holds the new segment.

    The section of an earlier graft may have grown with its segment.
    """
    old, new = (list(ELFFile(cast("IO[bytes]", data)).iter_sections()) for data in (before, after))
    segments = {
        (segment["p_offset"], segment["p_vaddr"], segment["p_filesz"])
        for segment in ELFFile(cast("IO[bytes]", after)).iter_segments()
        if segment["p_type"] == "PT_LOAD"
    }
    if not len(old) <= len(new) <= len(old) + 1:
        raise ValueError(f"the library has {len(new)} sections and not {len(old)}")
    for index, section in enumerate(new):
        same = index < len(old) and (section.name, section.header) == (old[index].name, old[index].header)
        place = section["sh_offset"], section["sh_addr"], section["sh_size"]
        if not same and not (section.name == SECTION and place in segments):
            raise ValueError(
                f"the section {section.name!r} is neither as before nor that of a segment for new GPU code"
            )


def _compare_words(before: mmap.mmap, after: mmap.mmap, words: Mapping[int, bytes]) -> None:
    for start, text in words.items():
        if after[start : start + len(text)] != text or not before[start : start + len(text)].isascii():
            raise ValueError(f"the text at {start:#x} was not replaced by the planned one")


def _follow(after: mmap.mmap, blob: FatBinary, address: int) -> Container:
    """Return the fat binary at the address that the library names now in the place that named the old one."""
    if blob.reference is None:
        return fatbin.read_container(after, blob.start)
    form = "<q" if blob.reference.kind == "relocation" else "<i"
    stated = blob.reference.base + struct.unpack_from(form, after, blob.reference.field)[0]
    if stated != address:
        raise ValueError(f"the reference to the fat binary at {blob.start:#x} names {stated:#x} and not {address:#x}")
    return fatbin.read_container(after, library.find_offset(after, stated))


def _compare(
    before: mmap.mmap,
    after: mmap.mmap,
    old: Container,
    new: Container,
    *,
    added: frozenset[int],
    kept: Collection[int] | None,
) -> tuple[int, bool]:
    """Return the number of new kernels, and whether the PTX is for later GPUs now."""
    code = {entry.architecture: entry for entry in new.entries if entry.kind == "sm"}
    for entry in old.entries:
        wanted = kept is None or entry.kind != "sm" or entry.architecture in kept
        if entry.kind != "compute" and wanted and not _find_same(before, after, entry, new):
            raise ValueError(f"the fat binary at {old.start:#x} has lost its {entry.name or 'other data'}")
    text, changed = _compare_texts(before, after, old, new)
    if text is None or not added:
        return 0, changed
    usual = find_newest(old)
    reference = cubin.read(fatbin.unpack(before, usual)) if usual else None
    names = {match.decode() for match in _ENTRIES.findall(text)}
    count = 0
    for architecture in sorted(added):
        if architecture not in code:
            raise ValueError(f"the fat binary at {old.start:#x} has no machine code for sm_{architecture}")
        code_for_gpu = cubin.read(fatbin.unpack(after, code[architecture]))
        _require_kernels(code_for_gpu, names, reference, architecture)
        count += len(code_for_gpu.kernels)
    return count, changed


def find_newest(container: Container) -> Entry | None:
    """Return the machine code of the latest GPU in a fat binary, or None."""
    code = (entry for entry in container.entries if entry.kind == "sm")
    return max(code, key=lambda candidate: candidate.architecture, default=None)


def _require_kernels(code: cubin.Cubin, names: set[str], reference: cubin.Cubin | None, architecture: int) -> None:
    if code.architecture != architecture:
        raise ValueError(f"machine code of sm_{code.architecture} stands where that of sm_{architecture} should")
    if code.kernels.keys() != names:
        wrong = min(code.kernels.keys() ^ names)
        raise ValueError(f"machine code and PTX differ in the kernel {wrong}")
    for name, kernel in code.kernels.items() if reference else ():
        if kernel != reference.kernels.get(name):  # type: ignore[union-attr]
            raise ValueError(f"the kernel {name} has other parameters than in the machine code of earlier GPUs")
    if reference and code.variables != reference.variables:
        raise ValueError("the machine code has other variables than that of earlier GPUs")


def _find_same(before: mmap.mmap, after: mmap.mmap, entry: Entry, new: Container) -> bool:
    raw = before[entry.start : entry.end]
    return any(other.name == entry.name and after[other.start : other.end] == raw for other in new.entries)


def _compare_texts(before: mmap.mmap, after: mmap.mmap, old: Container, new: Container) -> tuple[bytes | None, bool]:
    """Return the PTX of a fat binary, if it has any, and whether only the suffix of its target has changed."""
    texts = [[entry for entry in item.entries if entry.kind == "compute"] for item in (old, new)]
    if len(texts[0]) != len(texts[1]):
        raise ValueError(f"the fat binary at {old.start:#x} has lost PTX, or has more of it")
    changed = False
    text = None
    for old_entry, new_entry in zip(*texts, strict=True):
        text, now = fatbin.unpack(before, old_entry), fatbin.unpack(after, new_entry)
        if text != now:
            if assembly.drop_gpu_suffix(text) != now:
                raise ValueError(f"the fat binary at {old.start:#x} has other PTX")
            changed = True
    return text, changed
