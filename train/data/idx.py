"""Reads the IDX files of Fashion-MNIST (Xiao et al., arXiv 1708.07747), compressed or not."""

import gzip
import math
import struct
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from train.data.dataset import Split
from train.errors import DataError

UNSIGNED_BYTE = 8
MOST_DIMENSIONS = 3


def find_folder(folder: Path) -> Path | None:
    candidates = (folder / candidate for candidate in ("", "fashion-mnist", "raw", "FashionMNIST/raw"))
    return next((candidate for candidate in candidates if find(candidate, "train-images-idx3-ubyte")), None)


def find(folder: Path, name: str) -> Path | None:
    return next((path for path in (folder / f"{name}.gz", folder / name) if path.is_file()), None)


def read_folder(folder: Path) -> tuple[Split, Split]:
    splits = []
    for prefix in ("train", "t10k"):
        images, labels = (_read(folder, f"{prefix}-{kind}-ubyte") for kind in ("images-idx3", "labels-idx1"))
        if images.ndim != 3 or labels.ndim != 1:
            raise DataError(f"{folder}: {prefix} images or labels have the wrong number of dimensions")
        splits.append(Split(images[..., None], labels.astype(np.int32)))
    return splits[0], splits[1]


def _read(folder: Path, name: str) -> NDArray[np.uint8]:
    path = find(folder, name)
    if path is None:
        raise DataError(f"{folder} holds no {name}.gz")
    try:
        content = path.read_bytes()
        content = gzip.decompress(content) if path.suffix == ".gz" else content
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"cannot read {path}", why=str(error), remedy="get the file again") from error
    return parse(content, str(path))


def parse(content: bytes, origin: str) -> NDArray[np.uint8]:
    if len(content) < 4 or content[:3] != bytes([0, 0, UNSIGNED_BYTE]) or content[3] > MOST_DIMENSIONS:
        raise DataError(f"{origin} is no IDX file of bytes with up to {MOST_DIMENSIONS} dimensions")
    start = 4 + 4 * content[3]
    if len(content) < start:
        raise DataError(f"{origin} is cut short")
    shape = struct.unpack(f">{content[3]}I", content[4:start])
    if len(content) - start != math.prod(shape):
        raise DataError(f"{origin} holds {len(content) - start} bytes, and its header says {math.prod(shape)}")
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)
