"""Reads what an ELF file in a wheel needs from the system, and which GPUs it has code for."""

import mmap
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import IO, cast

from elftools.common.exceptions import ELFError
from elftools.construct.core import ConstructError
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection

from toolkit.checks.gpu_rules import read_cubin_architecture
from toolkit.wheel import fatbin

SECTION = ".nv_fatbin"


def read_architectures(data: bytes | mmap.mmap, start: int = 0, end: int | None = None) -> frozenset[str]:
    """Return the GPUs that the code between two offsets is for: ``sm_75`` machine code, ``compute_75`` PTX."""
    containers = fatbin.find_containers(data, start, end)
    return frozenset(entry.name for container in containers for entry in container.entries if entry.kind)


MAGIC = b"\x7fELF"
_EM_CUDA = "EM_CUDA"
_MACHINES = {"EM_X86_64": "x86_64", "EM_AARCH64": "aarch64"}
_VERSIONED = re.compile(r"(GLIBC|GLIBCXX|CXXABI)_([0-9]+(?:\.[0-9]+)*)")


@dataclass(frozen=True, kw_only=True)
class Library:
    needed: frozenset[str] = frozenset()  # names of the libraries that it loads
    # highest symbol version needed of GLIBC, GLIBCXX and CXXABI, if any
    symbols: dict[str, str] = field(default_factory=dict)
    architectures: frozenset[str] = frozenset()  # GPU code in it, such as ``sm_75``
    machine: str = ""  # the processor that it is for, as the kernel names it; empty for none of those offered


def read(data: mmap.mmap) -> Library:
    """Read an ELF file: a library, or a cubin, which is an ELF file for the GPU. Raises ValueError if it is damaged."""
    try:
        elf = ELFFile(cast("IO[bytes]", data))
        if elf["e_machine"] == _EM_CUDA:
            return Library(architectures=frozenset({f"sm_{read_cubin_architecture(data[:64])}"}))
        return Library(
            needed=frozenset(_find_needed(elf)),
            symbols=find_highest(_find_versions(elf)),
            architectures=frozenset(_find_architectures(elf, data)),
            machine=_MACHINES.get(elf["e_machine"], ""),
        )
    except (ELFError, ConstructError, UnicodeDecodeError, LookupError, TypeError, OverflowError) as error:
        # pyelftools does not validate its input, so a damaged file may raise any of these.
        raise ValueError(f"damaged ELF file: {error}") from error


def order(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def _find_needed(elf: ELFFile) -> Iterator[str]:
    for section in elf.iter_sections():
        if isinstance(section, DynamicSection):
            # Only some kinds of tags have this attribute, so the type hints lack it.
            yield from (str(tag.needed) for tag in section.iter_tags("DT_NEEDED"))  # type: ignore[attr-defined]


def _find_versions(elf: ELFFile) -> Iterator[tuple[str, str]]:
    for section in elf.iter_sections():
        if isinstance(section, GNUVerNeedSection):
            for _, names in section.iter_versions():
                for match in (_VERSIONED.fullmatch(item.name) for item in names):
                    if match:
                        yield match[1], match[2]


def find_highest(versions: Iterable[tuple[str, str]]) -> dict[str, str]:
    highest: dict[str, str] = {}
    for name, version in versions:
        highest[name] = max(version, highest.get(name, version), key=order)
    return highest


def _find_architectures(elf: ELFFile, data: mmap.mmap) -> Iterator[str]:
    for section in elf.iter_sections():
        if section.name == SECTION and section["sh_type"] != "SHT_NOBITS":
            start = section["sh_offset"]
            if start + section["sh_size"] > len(data):
                raise ValueError(f"the section {section.name} is longer than the file")
            yield from read_architectures(data, start, start + section["sh_size"])
    for start, end in find_bare_segments(elf):
        for container in fatbin.search_containers(data, start, end):
            yield from (entry.name for entry in container.entries)


def find_bare_segments(elf: ELFFile) -> list[tuple[int, int]]:
    """Return start and end of each segment that is loaded and holds no section; a graft adds one."""
    sections = [
        (section["sh_offset"], section["sh_offset"] + section["sh_size"])
        for section in elf.iter_sections()
        if section["sh_type"] not in {"SHT_NULL", "SHT_NOBITS"} and section["sh_size"]
    ]
    loaded = [
        (segment["p_offset"], segment["p_offset"] + segment["p_filesz"])
        for segment in elf.iter_segments()
        if segment["p_type"] == "PT_LOAD" and segment["p_filesz"]
    ]
    return [(start, end) for start, end in loaded if not any(first < end and start < last for first, last in sections)]
