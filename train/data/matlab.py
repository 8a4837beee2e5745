"""Reads SVHN's cropped digits as published: MAT-files of level 5 (Netzer et al., NIPS workshop 2011; MathWorks).

SciPy's reader stores each variable twice, and damaged files can crash its compiled part.
"""

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from train.data.dataset import Split
from train.errors import DataError

HEADER: Final = 128
COMPRESSED, MATRIX = 15, 14
# Types of stored numbers. MATLAB stores doubles as bytes if they are small whole numbers.
NUMBERS: Final = {1: "i1", 2: "u1", 3: "<i2", 4: "<u2", 5: "<i4", 6: "<u4", 7: "<f4", 9: "<f8", 12: "<i8", 13: "<u8"}
CHUNK: Final = 1 << 20
SLICE: Final = 1000
CLASSES: Final = 10


class Variable(NamedTuple):
    """A variable: its shape, whose first index varies fastest, and its values in the order of the file."""

    shape: tuple[int, ...]
    values: NDArray[Any]


def read(paths: list[Path]) -> Split:
    """Read files and join them. The files label the digit 0 as 10, the result labels it as 0."""
    parts = [_read_file(path) for path in paths]
    if len(parts) == 1:
        return parts[0]
    try:
        images = np.concatenate([part.images for part in parts])
    except ValueError as error:
        raise DataError(f"the images of {paths[0].parent} have different shapes") from error
    return Split(images, np.concatenate([part.labels for part in parts]))


def _read_file(path: Path) -> Split:
    try:
        with path.open("rb") as file:
            found = dict(_read_variables(file))
        images, labels = found["X"], found["y"].values
        return Split(_arrange(images), _convert_labels(labels))
    except (OSError, ValueError, KeyError, MemoryError, struct.error, zlib.error) as error:
        raise DataError(f"cannot read {path}", why=str(error), remedy="get the file again") from error


def _convert_labels(labels: NDArray[Any]) -> NDArray[np.int32]:
    wrong = np.flatnonzero(~np.isin(labels, np.arange(CLASSES + 1)))
    if len(wrong):
        raise ValueError(f"label {labels[wrong[0]]} of image {wrong[0]}, counted from 0, is no digit from 1 to 10")
    return (labels % CLASSES).astype(np.int32)


def _arrange(images: Variable) -> NDArray[np.uint8]:
    if len(images.shape) != 4 or images.values.dtype != np.uint8:
        raise ValueError("X is no array of images of bytes")
    height, width, channels, count = images.shape
    stored = images.values.view(np.uint8).reshape(count, channels, width, height)
    arranged = stored.reshape(count, height, width, channels)
    for start in range(0, count, SLICE):
        part = stored[start : start + SLICE].transpose(0, 3, 2, 1).copy()
        arranged[start : start + SLICE] = part
    return arranged


def _read_variables(file: BinaryIO) -> Iterator[tuple[str, Variable]]:
    header = file.read(HEADER)
    if header[124:] != b"\x00\x01IM":
        raise ValueError("it is no MAT-file of level 5")
    while tag := file.read(8):
        kind, size = struct.unpack("<2I", tag)
        if kind == COMPRESSED:
            inflated = _Inflated(file, size)
            kind, _ = struct.unpack("<2I", inflated.read(8))
            yield _read_variable(inflated, kind)
            inflated.close()
        else:
            end = file.tell() + size
            yield _read_variable(_Plain(file), kind)
            file.seek(end)


def _read_variable(stream: "_Inflated | _Plain", kind: int) -> tuple[str, Variable]:
    if kind != MATRIX:
        raise ValueError(f"it holds an element of type {kind} where a variable should be")
    _read_element(stream)
    shape = tuple(int(size) for size in _read_element(stream))
    name = _read_element(stream).tobytes().decode("ascii")
    values = _read_element(stream)
    if not all(size >= 0 for size in shape) or values.size != int(np.prod(shape, dtype=np.uint64)):
        raise ValueError(f"variable {name} does not have the size it says: {values.size} values for {shape}")
    return name, Variable(shape, values)


def _read_element(stream: "_Inflated | _Plain") -> NDArray[Any]:
    tag = stream.read(8)
    kind, size = struct.unpack("<2I", tag)
    if kind >> 16:
        kind, size = kind & 0xFFFF, kind >> 16
        content: bytes | bytearray = bytearray(tag[4 : 4 + size])
    else:
        content = stream.read(size)
        stream.read(-size % 8)
    if kind not in NUMBERS:
        raise ValueError(f"it holds an element of type {kind} where numbers should be")
    return np.frombuffer(content, NUMBERS[kind])


class _Plain:
    def __init__(self, file: BinaryIO) -> None:
        self.file = file

    def read(self, size: int) -> bytearray:
        """Read exactly so many bytes, in pieces, because a wrong size must not allocate too much memory."""
        content = bytearray()
        while len(content) < size:
            piece = self.file.read(min(CHUNK, size - len(content)))
            if not piece:
                raise ValueError("it is cut short")
            content += piece
        return content


class _Inflated:
    def __init__(self, file: BinaryIO, size: int) -> None:
        self.file, self.left, self.inflate = file, size, zlib.decompressobj()

    def read(self, size: int) -> bytearray:
        content = bytearray()
        while len(content) < size:
            piece = self._next(min(CHUNK, size - len(content)))
            if not piece:
                raise ValueError("it is cut short")
            content += piece
        return content

    def close(self) -> None:
        while self._next(CHUNK):
            pass
        if not self.inflate.eof or self.left:
            raise ValueError("it is cut short")

    def _next(self, size: int) -> bytes:
        while not self.inflate.eof:
            source = self.inflate.unconsumed_tail
            if not source:
                source = self.file.read(min(CHUNK, self.left))
                self.left -= len(source)
                if not source:
                    return b""
            piece = self.inflate.decompress(source, size)
            if piece:
                return piece
        return b""
