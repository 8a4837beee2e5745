"""Lets TensorFlow find NVIDIA's libraries by itself, by a correction of its search path.

A published wheel has a library that opens those of NVIDIA's packages by ``dlopen``. It finds them in the folders of its
own search path (RUNPATH). If a folder is missing there, its library is found only by LD_LIBRARY_PATH, and TensorFlow
drops every GPU. A search path cannot grow where it stands. But most of its folders are repeated in it, or lie outside
of the folder that the wheel is installed in. So a missing folder takes the place of one of these, and the library keeps
its length.
"""

import base64
import csv
import hashlib
import io
import mmap
import os
import posixpath
import shutil
import struct
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final, cast

from elftools.common.exceptions import ELFError
from elftools.construct.core import ConstructError
from elftools.elf.dynamic import DynamicSection, DynamicSegment
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerDefSection, GNUVerNeedSection
from elftools.elf.sections import SymbolTableSection
from packaging.utils import canonicalize_name

from toolkit.base import manifest
from toolkit.base.errors import CheckError, IntegrityError, PreflightError
from toolkit.checks.nvidia import find_wheels
from toolkit.graft import library, proof
from toolkit.wheel import archive, elf, inspection

_LOADER: Final = b"_ZN3tsl8internal18LoadDynamicLibraryEPKcPPv"
"""The function that calls ``dlopen`` (tsl/platform/load_library.cc), so that the search path of its library counts."""
_OPENER: Final = "_ZN3tsl8internal9DsoLoader{length}Get{name}DsoHandleEv"
"""A function that opens one of NVIDIA's libraries (tsl/platform/default/dso_loader.cc)."""
_OPENED: Final = {
    "CudaRuntime": "cuda-runtime",
    "Cublas": "cublas",
    "Cufft": "cufft",
    "Cusolver": "cusolver",
    "Cusparse": "cusparse",
    "Cudnn": "cudnn",
    "Nccl": "nccl",
    "Cupti": "cuda-cupti",
}
"""The component that has each library, by its name in those functions: the most needed ones first."""
_ORIGIN: Final = "$ORIGIN/"
_PATH_TAGS: Final = ("DT_RUNPATH", "DT_RPATH")
_NAME_TAGS: Final = ("DT_NEEDED", "DT_SONAME", "DT_AUXILIARY", "DT_FILTER")
_SYMBOL: Final = struct.Struct("<IBBHQQ")
_DAMAGED: Final = (
    ELFError, ConstructError, UnicodeDecodeError, LookupError, TypeError, OverflowError, MemoryError, struct.error
)  # fmt: skip
"""What pyelftools raises on damaged input, which it does not validate."""


@dataclass(frozen=True, kw_only=True)
class Correction:
    """What a library needs so that it finds each library that it opens."""

    words: Mapping[int, bytes]  # bytes that replace as many others, by their offset
    added: tuple[str, ...]  # folders of NVIDIA's libraries that are in the search path now
    impossible: tuple[str, ...]  # those that have no room there


def correct(name: str, data: mmap.mmap, cuda: str) -> Correction | None:
    """Return what to change in a library, or None if it opens none of NVIDIA's libraries, or finds them all.

    ``name``: the library's name in the wheel. ``cuda``: the release that it was built with; None is returned where the
    folders of its libraries are not known. Raises ValueError if the library is damaged.
    """
    wheels = find_wheels(cuda)
    if not wheels or data.find(_LOADER) < 0:
        return None
    try:
        elf_file = ELFFile(cast("IO[bytes]", data))
        opened = list(dict.fromkeys(wheels[component].folder for component in _list_opened(elf_file, data)))
        place = _find_search_path(elf_file, data) if opened else None
        if place is None:
            return None
        start, text = place
        changed, added, impossible = rearrange(name, text, opened)
        if not added and not impossible:
            return None
        if _shares_text(elf_file, data, start, len(text)):
            changed, added, impossible = text, [], [*added, *impossible]
        words = {} if changed == text else {start: changed.encode()}
        return Correction(words=words, added=tuple(added), impossible=tuple(impossible))
    except _DAMAGED as error:
        raise ValueError(f"damaged ELF file: {error}") from error


def rearrange(name: str, text: str, folders: list[str]) -> tuple[str, list[str], list[str]]:
    """Put missing folders of ``nvidia`` into a search path, which keeps its length.

    Return the new search path, the folders that are new in it, and those for which there is no room. ``name``: of the
    library in its wheel.
    """
    above = posixpath.dirname(name)
    parts, added, impossible = text.split(":"), [], []
    for folder in folders:
        if any(_locate(part, above) == _name_folder(folder) for part in parts):
            continue
        wanted = _ORIGIN + posixpath.relpath(_name_folder(folder), above)
        place = _choose_place(parts, len(wanted), above)
        if place is None:
            impossible.append(folder)
        else:
            # Slashes at the end of a folder mean nothing.
            parts[place] = wanted.ljust(len(parts[place]), "/")
            added.append(folder)
    return ":".join(parts), added, impossible


def _choose_place(parts: list[str], length: int, above: str) -> int | None:
    """Return the index of a part that can be given up for one of this length, or None.

    This is a repeated part, or if there is none, a part that leads outside of the folder that the wheel is installed
    in. Among these it is the shortest part that is long enough, and the last one of that length.
    """
    places = [_locate(part, above) for part in parts]
    long = [index for index, part in enumerate(parts) if len(part) >= length]
    repeated = [index for index in long if places[index] in places[:index]]
    outside = [index for index in long if _leaves(places[index])]
    return min(repeated or outside, key=lambda index: (len(parts[index]), -index), default=None)


def _name_folder(folder: str) -> str:
    return f"nvidia/{folder}/lib"


def _locate(part: str, above: str) -> str:
    """Return the folder that a part of a search path names, seen from the one that the wheel is installed in.

    ``above``: the folder of the library there.
    """
    if part != _ORIGIN.rstrip("/") and not part.startswith(_ORIGIN):
        return part
    return posixpath.normpath(posixpath.join(above, part.removeprefix("$ORIGIN").lstrip("/")))


def _leaves(place: str) -> bool:
    return place == ".." or place.startswith("../")


def _list_opened(elf_file: ELFFile, data: mmap.mmap) -> list[str]:
    """Return the components whose libraries a library opens by its own ``dlopen``."""
    table = elf_file.get_section_by_name(".dynsym")
    if not isinstance(table, SymbolTableSection):
        return []
    start = elf_file.get_section(table["sh_link"])["sh_offset"]
    end = start + elf_file.get_section(table["sh_link"])["sh_size"]
    defined = {name for name, _, _, section, _, _ in _iterate_symbols(table, data) if section}

    def defines(symbol: bytes) -> bool:
        at = data.find(symbol + b"\0", start, end)
        return at >= 0 and at - start in defined

    if not defines(_LOADER):
        return []
    names = {name: _OPENER.format(length=len(f"Get{name}DsoHandle"), name=name).encode() for name in _OPENED}
    return [_OPENED[name] for name, symbol in names.items() if defines(symbol)]


def _iterate_symbols(table: SymbolTableSection, data: mmap.mmap) -> Iterator[tuple[int, ...]]:
    size = table["sh_size"] - table["sh_size"] % _SYMBOL.size
    return _SYMBOL.iter_unpack(data[table["sh_offset"] : table["sh_offset"] + size])


def _find_search_path(elf_file: ELFFile, data: mmap.mmap) -> tuple[int, str] | None:
    """Return offset and text of the search path of a library."""
    dynamic = elf_file.get_section_by_name(".dynamic")
    if not isinstance(dynamic, DynamicSection):
        return None
    start = elf_file.get_section(dynamic["sh_link"])["sh_offset"]
    places = {tag.entry.d_tag: int(tag.entry.d_val) for tag in dynamic.iter_tags() if tag.entry.d_tag in _PATH_TAGS}
    place = next((places[tag] for tag in _PATH_TAGS if tag in places), None)  # the first one counts where both are
    return None if place is None else (start + place, _read_string(data, start + place))


def _shares_text(elf_file: ELFFile, data: mmap.mmap, start: int, length: int) -> bool:
    """Return whether another name would change with the search path, because linkers let names share their ends."""
    table, dynamic = elf_file.get_section_by_name(".dynsym"), elf_file.get_section_by_name(".dynamic")
    if not isinstance(table, SymbolTableSection) or not isinstance(dynamic, DynamicSection):
        return True
    first = start - elf_file.get_section(dynamic["sh_link"])["sh_offset"]
    places = {name for name, *_ in _iterate_symbols(table, data)}
    places |= {int(tag.entry.d_val) for tag in dynamic.iter_tags() if tag.entry.d_tag in _NAME_TAGS}
    for section in elf_file.iter_sections():
        if isinstance(section, GNUVerNeedSection):
            for version, names in section.iter_versions():
                places |= {version["vn_file"], *(item["vna_name"] for item in names)}
        elif isinstance(section, GNUVerDefSection):
            places |= {item["vda_name"] for _, names in section.iter_versions() for item in names}
    return any(first <= place < first + length for place in places)


def prove(name: str, source: Path, target: Path, correction: Correction) -> None:
    """Check a corrected library. Raises CheckError if its search path lacks a folder, or has one too many.

    The search path was found by the sections. Here it is read as the loader reads it, by the program headers.
    """
    above = posixpath.dirname(name)
    try:
        before, after = ({_locate(part, above) for part in read_as_loader(path)} for path in (source, target))
    except ValueError as error:
        raise _complain(name, str(error)) from error
    wanted = {_name_folder(folder) for folder in correction.added}
    if lost := sorted(part for part in before - after if not _leaves(part)):
        raise _complain(name, f"its search path has lost {lost[0]}")
    if after - before != wanted:
        raise _complain(name, f"its search path has {sorted(after - before)} more, and not {sorted(wanted)}")


def read_as_loader(path: Path) -> list[str]:
    """Return the parts of a library's search path. Raises ValueError if the library is damaged."""
    try:
        with library.mapping(path) as data:
            elf_file = ELFFile(cast("IO[bytes]", data))
            dynamic = next(item for item in elf_file.iter_segments() if isinstance(item, DynamicSegment))
            values = {tag.entry.d_tag: int(tag.entry.d_val) for tag in dynamic.iter_tags()}
            place = next(values[tag] for tag in _PATH_TAGS if tag in values)
            start = library.find_offset(data, values["DT_STRTAB"] + place)
            return _read_string(data, start).split(":")
    except (*_DAMAGED, StopIteration) as error:
        raise ValueError(f"damaged ELF file: {error}") from error


def _read_string(data: mmap.mmap, start: int) -> str:
    end = data.find(b"\0", start)
    if end < 0:
        raise ValueError("damaged ELF file: a name does not end")
    return data[start:end].decode()


def _complain(name: str, why: str) -> CheckError:
    return CheckError(
        f"the rewritten library {name} failed the comparison with its original",
        why=why,
        remedy="please report it; nothing was changed",
    )


@dataclass(frozen=True, kw_only=True)
class Repaired:
    """A library of an installed TensorFlow."""

    name: str  # in its wheel
    added: tuple[str, ...]  # folders of NVIDIA's libraries that it finds now
    impossible: tuple[str, ...]  # those for which its search path has no room


NOTE: Final = "REPAIRED"
"""File among the metadata of a TensorFlow whose libraries were corrected where they are installed."""


def needs_repair(site_packages: Path) -> bool:
    """Return whether an installed TensorFlow has a library whose search path can be corrected."""
    corrections = (_read_correction(site_packages, row[0]) for _, _, row in _list_libraries(site_packages))
    return any(correction and correction.words for correction in corrections)


def repair_installed(site_packages: Path) -> list[Repaired]:
    """Correct the search paths of an installed TensorFlow, and return the libraries that needed it.

    RECORD gets their new hashes, and a file ``REPAIRED`` beside it tells what was changed. A corrected library is a new
    file, because an installer may have linked the old one to its cache. If a call is interrupted, the next one
    completes it. Raises IntegrityError if a library is not the one that was installed, and PreflightError if the folder
    cannot be written.
    """
    done = []
    for record, rows, row in _list_libraries(site_packages):
        done += _repair_file(site_packages, record, rows, row)
    return done


def list_repairs(site_packages: Path) -> list[Repaired]:
    """Return what :func:`repair_installed` would do, and change nothing."""
    found = [(row[0], _read_correction(site_packages, row[0])) for _, _, row in _list_libraries(site_packages)]
    return [_describe_repair(name, correction) for name, correction in found if correction]


def _describe_repair(name: str, correction: Correction) -> Repaired:
    return Repaired(name=name, added=correction.added, impossible=correction.impossible)


def _list_libraries(site_packages: Path) -> Iterator[tuple[Path, list[list[str]], list[str]]]:
    """Yield each library of an installed TensorFlow: its RECORD, all rows of that, and its row."""
    for record in sorted(site_packages.glob("*.dist-info/RECORD")):
        if canonicalize_name(record.parent.name.partition("-")[0]) not in manifest.PUBLISHED:
            continue
        rows = list(csv.reader(io.StringIO(record.read_text(encoding="utf-8"))))
        for row in list(rows):
            if len(row) == 3 and ".so" in posixpath.basename(row[0]) and row[1].startswith("sha256="):
                yield record, rows, row


def _read_correction(site_packages: Path, name: str) -> Correction | None:
    path = site_packages / name
    if not path.is_file() or not path.stat().st_size:
        return None
    with _naming_damage(str(site_packages), name), library.mapping(path) as data:
        return correct(name, data, _read_cuda(site_packages)) if data[:4] == elf.MAGIC else None


def _read_cuda(site_packages: Path) -> str:
    """Return the CUDA that the installed TensorFlow was built with; empty if it was built without."""
    path = site_packages / inspection.BUILD_INFO
    return inspection.parse_build_info(path.read_text(encoding="utf-8")).cuda if path.is_file() else ""


def _repair_file(site_packages: Path, record: Path, rows: list[list[str]], row: list[str]) -> list[Repaired]:
    path, correction = site_packages / row[0], _read_correction(site_packages, row[0])
    if correction is None:
        return []
    repaired = _describe_repair(row[0], correction)
    if not correction.words:
        return [repaired]
    try:
        with tempfile.TemporaryDirectory(prefix=".toolkit-", dir=path.parent) as folder:
            new = Path(folder, path.name)
            _rewrite(row[0], path, new, correction)
            shutil.copymode(path, new)
            before, after = _hash(path), _hash(new)
            if row[1] not in (before, after):
                raise IntegrityError(
                    f"{path} is not the file that was installed",
                    why="its hash is not that of RECORD",
                    remedy="install TensorFlow again",
                )
            row[1] = after
            note = f"{record.parent.name}/{NOTE}"
            (site_packages / note).write_text(f"The search path of {row[0]} has {', '.join(correction.added)} too.\n")
            if [note, "", ""] not in rows:
                rows.append([note, "", ""])
            # First the record, so that a call that is ended here is told from a file that was damaged.
            _write_record(record, rows)
            _replace(new, path)
    except OSError as error:
        raise PreflightError(
            f"cannot correct the search path of {path}",
            why=error.strerror or str(error),
            remedy="run it as the owner of the folder, with free space for a copy of the file",
        ) from error
    return [repaired]


def _rewrite(name: str, source: Path, target: Path, correction: Correction) -> None:
    """Write a library with another search path, and compare it with the original."""
    nothing = library.Inventory(blobs=(), relocatable=0, texts=())
    layout = library.write(source, target, nothing, {}, correction.words)
    with library.mapping(source) as before, library.mapping(target) as after:
        proof.prove(name, before, after, nothing, layout, added={}, kept=None, words=correction.words)
    prove(name, source, target, correction)


def _write_record(record: Path, rows: list[list[str]]) -> None:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    with tempfile.NamedTemporaryFile("w", prefix=".RECORD.", dir=record.parent, delete=False, encoding="utf-8") as new:
        new.write(text.getvalue())
        new.flush()
        os.fsync(new.fileno())
    shutil.copymode(record, new.name)
    Path(new.name).replace(record)


def _replace(new: Path, old: Path) -> None:
    new.replace(old)


def _hash(path: Path) -> str:
    with path.open("rb") as stream:
        value = hashlib.file_digest(stream, "sha256").digest()
    return "sha256=" + base64.urlsafe_b64encode(value).decode().rstrip("=")


@contextmanager
def _naming_damage(place: str, name: str) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise IntegrityError(
            f"{place} holds a damaged library", why=f"{name}: {error}", remedy=archive.REMEDY
        ) from error
