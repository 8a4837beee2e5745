"""Looks for faults of a data set: one that cannot be trained on is refused, an oddity is only reported."""

import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from train.data.dataset import LEAST_DEVIATION, Dataset, Split, cut
from train.errors import DataError

LOOK: Final = 16
"""Number of images that are compared with each other, of a set that memory does not hold."""

_SHOWN: Final = 5


def check(dataset: Dataset, shape: tuple[int, int, int], classes: int) -> Dataset:
    """Return the data set if its images have this shape and its labels are in range; else raise a DataError."""
    for name, split in (("training", dataset.train), ("test", dataset.test)):
        if not len(split):
            raise DataError(f"the {name} split of {dataset.source} is empty")
        if len(split.images) != len(split.labels):
            raise DataError(f"{dataset.source}: {len(split.images)} {name} images, but {len(split.labels)} labels")
        if split.images.shape[1:] != shape:
            raise DataError(f"{dataset.source}: {name} images are {split.images.shape[1:]}, not {shape}")
        wrong = np.flatnonzero((split.labels < 0) | (split.labels >= classes))
        if len(wrong):
            low, high, first = int(split.labels.min()), int(split.labels.max()), int(wrong[0])
            raise DataError(
                f"{dataset.source}: {name} labels run from {low} to {high}, not from 0 to {classes - 1}",
                why=f"{len(wrong)} of {len(split)} are wrong; the first is {split.labels[first]} of image {first}, "
                "counted from 0",
                remedy="give the data set that the labels belong to, or other --labels",
            )
    return dataset


def check_classes(splits: Mapping[str, Split], names: tuple[str, ...], source: str, left_out: str) -> None:
    """Raise a DataError if the training split has one class only, or another split a class that it lacks."""
    trained = np.unique(splits["train"].labels)
    if len(trained) < 2:
        raise DataError(
            f"all training images of {source} are of one class",
            why=f"there is nothing to tell {names[trained[0]]} from" + (left_out and f"; left out: {left_out}"),
            remedy="give a folder with one folder of images for each of two or more classes",
        )
    for use, split in splits.items():
        if len(unknown := np.setdiff1d(split.labels, trained)):
            raise DataError(
                f"the {use} split of {source} has a class that the training split lacks: {names[unknown[0]]}",
                why="a model cannot answer what it has not been trained on",
                remedy="add images of it to the training split, or remove it",
            )


def find_alike(names: Sequence[str], source: str) -> tuple[str, ...]:
    """Return a warning for classes whose names look alike, which are trained as different ones."""
    alike: dict[str, list[str]] = {}
    for name in names:
        # A letter with an accent is one code point or two, which look the same (Unicode's forms NFC and NFD).
        alike.setdefault(" ".join(unicodedata.normalize("NFC", name).casefold().split()), []).append(name)
    groups = [" and ".join(group) for group in alike.values() if len(group) > 1]
    if not groups:
        return ()
    said = f"{', '.join(groups[:_SHOWN])} of {source} are different classes, because their names differ in case, spaces"
    return (f"{said} or the encoding of accents; if they are the same thing, put their images into one folder",)


def find_overlap(splits: Mapping[str, Split], source: str) -> tuple[str, ...]:
    """Return a warning for each split that has images, byte for byte, of the training split."""
    digests = {use: [digest.tobytes() for digest in split.images.digests] for use, split in splits.items()}
    trained = set(digests.pop("train"))
    shared = {use: sum(digest in trained for digest in found) for use, found in digests.items()}
    return tuple(
        f"{count} of {len(splits[use])} {use} images of {source} are also training images, byte for byte: "
        f"the {use} accuracy is too good"
        for use, count in shared.items()
        if count
    )


def describe_oddities(dataset: Dataset) -> list[str]:
    splits = {"training": dataset.train, "validation": dataset.validation, "test": dataset.test}
    known = {name: split for name, split in splits.items() if split}
    return [*dataset.warnings, *_compare_images(dataset, known), *_count_classes(dataset, known)]


def _compare_images(dataset: Dataset, splits: Mapping[str, Split]) -> Iterator[str]:
    images = {name: split.sample(LOOK)[:] for name, split in splits.items()}
    equal = {name for name, some in images.items() if len(some) > 1 and all((p == some[0]).all() for p in cut(some))}
    for name in equal:
        first = images[name][0]
        pixels = f": every pixel is {first.flat[0]}" if (first == first.flat[0]).all() else ""
        yield f"all {len(splits[name])} {name} images of {dataset.source} are the same{pixels}"
    for channel, value in enumerate(images["training"][0, 0, 0].tolist()):
        # The sums behind it are exact, so a constant channel has exactly the least deviation.
        if dataset.deviations[channel] <= LEAST_DEVIATION and "training" not in equal:
            yield f"channel {channel} of all training images of {dataset.source} is {value} in every pixel"


def _count_classes(dataset: Dataset, splits: Mapping[str, Split]) -> Iterator[str]:
    names = [f"{label} ({name})" if name != str(label) else name for label, name in enumerate(dataset.class_names)]
    for split_name, split in splits.items():
        found = set(np.unique(split.labels).tolist())
        missing = [name for label, name in enumerate(names) if label not in found]
        if len(found) == 1 and len(split) > 1:
            yield f"all {len(split)} {split_name} images of {dataset.source} are of one class, {names[found.pop()]}"
        elif split_name == "training" and missing:
            shown = ", ".join(missing[:_SHOWN]) + ", …" * (len(missing) > _SHOWN)
            yield f"{len(missing)} of {len(names)} classes have no training image in {dataset.source}: {shown}"
