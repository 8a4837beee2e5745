import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from train.data.pictures import Pictures
from train.errors import DataError
from train.order import stream

_SLICE: Final = 1000

SAMPLE: Final = 2000
"""Number of images that stand for all of a set that memory does not hold, for mean and deviation."""

LOOK: Final = 16
"""Number of them that are compared with each other."""

LEAST_DEVIATION: Final = 1e-6
"""Smallest standard deviation, in byte units, which a channel with one value everywhere gets."""


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
        images = self.images.take(indices) if isinstance(self.images, Pictures) else self.images[indices]
        return Split(images, self.labels[indices])

    def sample(self, count: int = SAMPLE) -> NDArray[np.uint8]:
        """Return all images if memory holds them, else a fixed sample, as one array."""
        if not isinstance(self.images, Pictures):
            held: NDArray[np.uint8] = self.images
            return held
        return self.images[np.sort(stream(0, "split").permutation(len(self))[:count])]


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
        mean, _ = self._moments
        return 0 * mean if self.divided else mean

    @cached_property
    def std(self) -> NDArray[np.float64]:
        """What normalization divides by, in byte units: (channels,)."""
        return 0 * self.deviations + 255 if self.divided else self.deviations

    @cached_property
    def _moments(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        if self.moments:
            return self.moments
        # Integer sums are exact in any order. Slices avoid a large copy.
        images, axes = self.train.sample(), (0, 1, 2)
        total = np.zeros(images.shape[-1], np.uint64)
        squares = np.zeros_like(total)
        for start in range(0, len(images), _SLICE):
            part = images[start : start + _SLICE].astype(np.uint32)
            total += part.sum(axes, dtype=np.uint64)
            squares += (part * part).sum(axes, dtype=np.uint64)
        count = images[..., 0].size
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
            images = split.images
            if isinstance(images, Pictures):
                images = np.frombuffer(b"".join(images.digests), np.uint8)
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


_SHOWN: Final = 5


def describe_oddities(dataset: Dataset) -> list[str]:
    return [*dataset.warnings, *_compare_images(dataset), *_count_classes(dataset)]


def _name_splits(dataset: Dataset) -> Iterator[tuple[str, Split]]:
    yield "training", dataset.train
    if dataset.validation:
        yield "validation", dataset.validation
    yield "test", dataset.test


def _compare_images(dataset: Dataset) -> Iterator[str]:
    equal = {name: len(split) > 1 and _is_one_image(split.sample(LOOK)) for name, split in _name_splits(dataset)}
    for name, split in _name_splits(dataset):
        if equal[name]:
            first = split.sample(LOOK)[0]
            pixels = f": every pixel is {first.flat[0]}" if (first == first.flat[0]).all() else ""
            yield f"all {len(split)} {name} images of {dataset.source} are the same{pixels}"
    for channel, value in enumerate(dataset.train.sample(LOOK)[0, 0, 0].tolist()):
        # The sums behind it are exact, so a constant channel has exactly the least deviation.
        if dataset.deviations[channel] <= LEAST_DEVIATION and not equal["training"]:
            yield f"channel {channel} of all training images of {dataset.source} is {value} in every pixel"


def _is_one_image(images: NDArray[np.uint8]) -> bool:
    starts = range(0, len(images), _SLICE)
    return all((images[start : start + _SLICE] == images[0]).all() for start in starts)


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
