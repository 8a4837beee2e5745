"""Finds what makes a data set useless to train on although it can be read: equal images, classes without examples."""

from collections.abc import Iterator
from typing import Final

import numpy as np

from train.data.dataset import LEAST_DEVIATION, Dataset, Split

_SLICE: Final = 1000
_SHOWN: Final = 5


def describe_oddities(dataset: Dataset) -> list[str]:
    """Return a sentence for each thing that makes a result on this data set meaningless; none for a sound one."""
    return [*_compare_images(dataset), *_count_classes(dataset)]


def _name_splits(dataset: Dataset) -> Iterator[tuple[str, Split]]:
    yield "training", dataset.train
    if dataset.validation:
        yield "validation", dataset.validation
    yield "test", dataset.test


def _compare_images(dataset: Dataset) -> Iterator[str]:
    equal = {name: len(split) > 1 and _is_one_image(split) for name, split in _name_splits(dataset)}
    for name, split in _name_splits(dataset):
        if equal[name]:
            first = split.images[0]
            pixels = f": every pixel is {first.flat[0]}" if (first == first.flat[0]).all() else ""
            yield f"all {len(split)} {name} images of {dataset.source} are the same{pixels}"
    for channel, value in enumerate(dataset.train.images[0, 0, 0].tolist()):
        # The sums behind it are exact, so a constant channel has exactly the least deviation.
        if dataset.std[channel] <= LEAST_DEVIATION and not equal["training"]:
            yield f"channel {channel} of all training images of {dataset.source} is {value} in every pixel"


def _is_one_image(split: Split) -> bool:
    """Return whether all images are equal; reads a slice at a time, and no further than the first that differs."""
    starts = range(0, len(split), _SLICE)
    return all((split.images[start : start + _SLICE] == split.images[0]).all() for start in starts)


def _count_classes(dataset: Dataset) -> Iterator[str]:
    names = [f"{label} ({name})" if name != str(label) else name for label, name in enumerate(dataset.class_names)]
    for split_name, split in _name_splits(dataset):
        found = set(np.unique(split.labels).tolist())
        missing = [name for label, name in enumerate(names) if label not in found]
        if len(found) == 1 and len(split) > 1:
            yield f"all {len(split)} {split_name} images of {dataset.source} are of one class, {names[found.pop()]}"
        elif split_name == "training" and missing:
            shown = ", ".join(missing[:_SHOWN]) + ", …" * (len(missing) > _SHOWN)
            yield f"{len(missing)} of {len(names)} classes have no training image in {dataset.source}: {shown}"
