"""Reads SVHN's cropped digits as published, MAT-files of level 5 (Netzer et al., NIPS workshop 2011), by SciPy.

Damaged files can crash SciPy's compiled part, so a file is read only if it has its published digest.
"""

import io
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from train.data import download
from train.data.dataset import Split

CLASSES = 10


def read(paths: list[Path], sha256: Mapping[str, str]) -> Split:
    """Read files and join them. The files label the digit 0 as 10, the result labels it as 0."""
    parts = [_read_file(path, sha256[path.name]) for path in paths]
    if len(parts) == 1:
        return parts[0]
    return Split(np.concatenate([part.images for part in parts]), np.concatenate([part.labels for part in parts]))


def _read_file(path: Path, sha256: str) -> Split:
    from scipy.io import loadmat  # type: ignore[import-untyped]

    content = download.read_checked(path, sha256)
    found = loadmat(io.BytesIO(content), variable_names=["X", "y"])
    images, labels = found["X"].transpose(3, 0, 1, 2), found["y"].ravel()
    return Split(np.ascontiguousarray(images), (labels % CLASSES).astype(np.int32))
