"""Rules of CUDA and cuDNN that the toolkit, the checks in an image and the proof of the toolchain share.

This file needs only the standard library: images and build stages get it without the rest of the toolkit.
"""

import re
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Conflict = Literal["", "major", "older"]

_CAPABILITY = re.compile(r"(?:(sm|compute)_([0-9]{1,2})|([0-9]{1,2})\.)([0-9])([af]?)")
_EM_CUDA = 190
"""ELF machine number of NVIDIA's GPUs."""
_HEADER_BYTES = 64
_ABI_VERSION = 8  # index into e_ident


@dataclass(frozen=True)
class Capability:
    """A compute capability; ``kind`` is ``sm``, ``compute``, or empty where it was written as a number."""

    kind: str
    major: int
    minor: int
    suffix: str

    @property
    def number(self) -> str:
        """The number: ``7.5``, ``9.0a``."""
        return f"{self.major}.{self.minor}{self.suffix}"

    @property
    def architecture(self) -> str:
        """The number as the compiler writes it after ``sm_``: ``75``, ``90a``."""
        return f"{self.major}{self.minor}{self.suffix}"


def parse_capability(text: str) -> Capability | None:
    """Return the capability written as ``7.5``, ``sm_75`` or ``compute_75``; None where the text has no such form."""
    match = _CAPABILITY.fullmatch(text)
    return Capability(match[1] or "", int(match[2] or match[3]), int(match[4]), match[5]) if match else None


@dataclass(frozen=True)
class Coverage:
    """How code serves a GPU: by machine code for its capability or an earlier minor one, or by PTX."""

    kind: Literal["native", "minor", "ptx"]
    code: str  # such as ``sm_75``

    @property
    def is_native(self) -> bool:
        """Whether the driver has nothing to compile."""
        return self.kind != "ptx"

    def __str__(self) -> str:
        if self.kind == "ptx":
            return f"{self.code} PTX, compiled by the driver when a kernel is first used"
        return f"{self.code} machine code" + (" of an earlier minor version" if self.kind == "minor" else "")


def find_coverage(built: Iterable[str], asked: str) -> Coverage | None:
    """Return how a list such as ``["sm_70", "compute_90"]`` serves capability ``7.5``, or None if it does not.

    A cubin runs on its own major version with an equal or later minor; PTX is compiled by the driver for any later
    device. ``compute_XY`` means both (``third_party/gpus/cuda_configure.bzl`` in TensorFlow). A suffix, as in
    ``sm_90a``, binds code to exactly that device.
    """
    major, minor = (int(part) for part in asked.split("."))
    cubins: list[tuple[int, str]] = []
    texts: list[tuple[tuple[int, int], str]] = []
    for item in built:
        found = parse_capability(item)
        if found is None or not found.kind:
            continue
        version = (found.major, found.minor)
        if found.suffix and version != (major, minor):
            continue
        if found.major == major and found.minor <= minor:
            cubins.append((found.minor, item))
        if found.kind == "compute" and version <= (major, minor):
            texts.append((version, item))
    if cubins:
        best, name = max(cubins)
        return Coverage("native" if best == minor else "minor", name)
    if texts:
        return Coverage("ptx", max(texts)[1])
    return None


def read_cubin_architecture(cubin: bytes) -> int:
    """Return the ``XY`` of ``sm_XY`` for which a cubin was assembled.

    It is the low byte of the ELF flags up to ABI version 7, and the byte above it from version 8, of CUDA 13 (seen by
    assembling for many with ptxas 12.6.68 and 13.0.88). Raises ValueError: not a cubin.
    """
    if len(cubin) < _HEADER_BYTES or cubin[:4] != b"\x7fELF" or struct.unpack_from("<H", cubin, 18)[0] != _EM_CUDA:
        raise ValueError("no ELF file for a GPU")
    flags: int = struct.unpack_from("<I", cubin, 48)[0]
    return (flags >> 8 if cubin[_ABI_VERSION] >= 8 else flags) & 0xFF


def compare_cuda(built: object, present: object) -> Conflict:
    """Return ``major`` where CUDA libraries are of another major version than the build, else an empty string.

    NVIDIA's minor version compatibility serves every build of the same major version.
    """
    wanted, given = read_numbers(built), read_numbers(present)
    return "major" if wanted and given and wanted[0] != given[0] else ""


def compare_cudnn(built: object, present: object) -> Conflict:
    """Return why TensorFlow built for one cuDNN does not load another, or an empty string.

    IsSourceCompatibleWithCudnnLibrary in its cuda_dnn.cc: the major version is the same, and the minor version is not
    lower than the one of the build. The patch number does not count. A part that is not given is not compared.
    """
    wanted, given = read_numbers(built), read_numbers(present)
    if not wanted or not given:
        return ""
    if wanted[0] != given[0]:
        return "major"
    return "older" if wanted[:2] > given[:2] else ""


def read_numbers(version: object) -> tuple[int, ...]:
    """Return the numbers of ``12.5.1`` or ``64_9``; none for an empty value."""
    return tuple(int(part) for part in re.findall(r"\d+", str(version or "").removeprefix("64_")))
