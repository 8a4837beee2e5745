from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

NUMBERS = np.random.default_rng(0)


def make_image(size: tuple[int, int] = (12, 12), channels: int = 3) -> NDArray[np.uint8]:
    shape = (*size, channels) if channels > 1 else size
    return NUMBERS.integers(0, 256, shape).astype(np.uint8)


def write_image(path: Path, array: NDArray[np.uint8] | None = None) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(make_image() if array is None else array).save(path)
    return path


def write_classes(
    folder: Path,
    classes: Iterable[str] = ("cat", "dog"),
    count: int = 5,
    size: tuple[int, int] = (12, 12),
    *,
    channels: int = 3,
) -> Path:
    for name in classes:
        for number in range(count):
            write_image(folder / name / f"{number}.png", make_image(size, channels))
    return folder


def count_labels(labels: NDArray[np.int32]) -> Mapping[int, int]:
    values, counts = np.unique(labels, return_counts=True)
    return dict(zip(values.tolist(), counts.tolist(), strict=True))
