import hashlib
import math
from collections.abc import Iterator
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
