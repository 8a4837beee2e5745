"""Holds the images of a data set, and looks for its faults: some are refused, and an oddity is only reported."""

import hashlib
import math
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from train.data.order import stream
from train.data.pictures import Pictures
from train.errors import DataError

SLICE: Final = 3_000_000
"""Number of bytes of images that are summed or compared at a time."""

SAMPLE: Final = 2000
"""Number of images that stand for all of a set that memory does not hold, for mean and deviation."""

LEAST_DEVIATION: Final = 1e-6
"""Smallest standard deviation, in byte units, which a channel with one value everywhere gets."""


def cut(images: Any) -> Iterator[NDArray[np.uint8]]:
    """Yield the images in slices, which avoids large copies."""
    step = max(1, SLICE // math.prod(images.shape[1:]))
    return (images[start : start + step] for start in range(0, len(images), step))


@dataclass(frozen=True)
class Split:
    """Images (count, height, width, channels) as bytes, and their labels (count,) from 0.

    The images are an array, or `Pictures`, which are read from their files when they are indexed.
    """

    images: Any
    labels: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, indices: NDArray[np.int64]) -> "Split":
        return Split(self.images.take(indices, 0), self.labels[indices])

    def sample(self, count: int = SAMPLE) -> Any:
        """Return all images if memory holds them, else a fixed sample, which is read when it is indexed."""
        if not isinstance(self.images, Pictures):
            return self.images
        return self.images.take(np.sort(stream(0, "split").permutation(len(self))[:count]))


@dataclass(frozen=True)
class Dataset:
    train: Split
    test: Split
    class_names: tuple[str, ...]
    source: str
    validation: Split | None = None
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    divided: bool = False  # the network gets bytes divided by 255
    moments: tuple[NDArray[np.float64], NDArray[np.float64]] | None = None  # in place of those of the training images

    @property
    def watched(self) -> Split:
        """The split that is evaluated after each epoch: validation if there is one, else test."""
        return self.validation or self.test

    @cached_property
    def mean(self) -> NDArray[np.float64]:
        """What normalization subtracts, in byte units: (channels,)."""
        return self._moments[0] * (not self.divided)

    @cached_property
    def std(self) -> NDArray[np.float64]:
        """What normalization divides by, in byte units: (channels,)."""
        return 0 * self.deviations + 255 if self.divided else self.deviations

    @cached_property
    def _moments(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        if self.moments:
            return self.moments
        # Integer sums are exact in any order.
        images, axes = self.train.sample(), (0, 1, 2)
        total = np.zeros(images.shape[-1], np.uint64)
        squares = np.zeros_like(total)
        for some in cut(images):
            part = some.astype(np.uint32)
            total += part.sum(axes, dtype=np.uint64)
            squares += (part * part).sum(axes, dtype=np.uint64)
        count = math.prod(images.shape[:3])
        mean = total / count
        return mean, np.sqrt(np.maximum(squares / count - mean**2, LEAST_DEVIATION**2))

    @property
    def deviations(self) -> NDArray[np.float64]:
        """Standard deviation of the training images in byte units: (channels,)."""
        return self._moments[1]

    def balance(self, classes: int) -> tuple[float, ...]:
        """Return a weight for each class, with which all classes count the same and the mean over images is 1."""
        counts = np.bincount(self.train.labels, minlength=classes)
        present = np.count_nonzero(counts)
        return tuple((len(self.train) / (present * np.maximum(counts, 1))).tolist())

    @cached_property
    def digest(self) -> str:
        """SHA-256 of all images and labels, whatever their file format, as hexadecimal text."""
        state = hashlib.sha256()
        for split in (self.train, self.test):
            images = split.images.digests.reshape(-1) if isinstance(split.images, Pictures) else split.images
            for values in (images, split.labels):
                state.update(f"{values.dtype.str}{values.shape}".encode())
                state.update(np.ascontiguousarray(values).data)
        return state.hexdigest()

    def hold_out(self, count: int, seed: int) -> "Dataset":
        if count >= len(self.train):
            raise DataError(f"cannot hold out {count} of {len(self.train)} training examples")
        order = stream(seed, "split").permutation(len(self.train))
        kept, held = np.sort(order[count:]), np.sort(order[:count])
        return replace(self, train=self.train.take(kept), validation=self.train.take(held))


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
    sentence = (
        f"{', '.join(groups[:_SHOWN])} of {source} are different classes, because their names differ in case, spaces"
    )
    return (f"{sentence} or the encoding of accents; if they are the same thing, put their images into one folder",)


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
        labels = set(np.unique(split.labels).tolist())
        missing = [name for label, name in enumerate(names) if label not in labels]
        if len(labels) == 1 and len(split) > 1:
            yield f"all {len(split)} {split_name} images of {dataset.source} are of one class, {names[labels.pop()]}"
        elif split_name == "training" and missing:
            shown = ", ".join(missing[:_SHOWN]) + ", …" * (len(missing) > _SHOWN)
            verb = "has" if len(missing) == 1 else "have"
            yield f"{len(missing)} of {len(names)} classes {verb} no training image in {dataset.source}: {shown}"
