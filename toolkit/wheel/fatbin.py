"""GPU architectures in a fat binary, the container that CUDA compilers embed in a library's ``.nv_fatbin`` section.

NVIDIA does not document the format; the layout is the one that cuda-fatbin-decompression (N. Eiling, 2023) and others
have read out of cuobjdump, and it is checked here against libraries of NVIDIA and against the published TensorFlow.
"""

import mmap
import struct
from collections.abc import Iterator

SECTION = ".nv_fatbin"

_MAGIC = struct.pack("<I", 0xBA55ED50)
_CONTAINER = struct.Struct("<IHHQ")  # magic, version, bytes of this header, bytes that follow it
_ENTRY = struct.Struct(
    "<HHIQIIHHI"
)  # kind, -, bytes of this header, bytes that follow, -, -, minor, major, architecture
_KINDS = {1: "compute", 2: "sm"}


def read_architectures(data: bytes | mmap.mmap, start: int = 0, end: int | None = None) -> frozenset[str]:
    """What a section holds code for: ``sm_75`` for machine code, ``compute_75`` for PTX.

    Args:
        data: the file.
        start, end: bounds of the section in it.

    Raises:
        ValueError: a container runs over its bounds.
    """
    end = len(data) if end is None else end
    found: set[str] = set()
    # Containers are padded to a boundary that differs between compilers, so the next one is searched for.
    while (start := data.find(_MAGIC, start, end)) >= 0:
        if start + _CONTAINER.size > end:
            raise ValueError("a fat binary ends within its header")
        _, _, header, size = _CONTAINER.unpack_from(data, start)
        if header < _CONTAINER.size or start + header + size > end:
            raise ValueError("a fat binary is longer than its section")
        found.update(_read_entries(data, start + header, start + header + size))
        start += header + size
    return frozenset(found)


def _read_entries(data: bytes | mmap.mmap, start: int, end: int) -> Iterator[str]:
    while start + _ENTRY.size <= end:
        kind, _, header, size, _, _, _, _, architecture = _ENTRY.unpack_from(data, start)
        if header < _ENTRY.size or start + header + size > end:
            raise ValueError("an entry of a fat binary is longer than its container")
        if kind in _KINDS:
            yield f"{_KINDS[kind]}_{architecture}"
        start += header + size
