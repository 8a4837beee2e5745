"""Holds the candidates. Each has ``load(job)`` and ``make(job)``, and imports only its own framework."""

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]


class Training(NamedTuple):
    """A network in training: a function that runs a step and returns its loss, and one that reads all weights."""

    step: Callable[[], float]
    read: Callable[[], Iterable[Array]]


def make_batch(job: dict[str, Any]) -> tuple[Array, Array]:
    """Return normalised square images (batch, height, width, 3) in float32 and labels (batch,) in int64."""
    numbers, pixels = np.random.default_rng(0), job.get("pixels", 32)
    images = numbers.normal(size=(job["batch"], pixels, pixels, 3)).astype(np.float32)
    return images, numbers.integers(0, 10, job["batch"])


def iterate(job: dict[str, Any]) -> Iterator[tuple[Array, Array]]:
    """Yield batches without end: scikit-learn's digits (batch, 8, 8, 1) in their order, or the same random images."""
    if job.get("data") != "digits":
        yield from itertools.repeat(make_batch(job))
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    images = ((images - 5) / 6).astype(np.float32).reshape(-1, 8, 8, 1)  # correctly rounded, so equal everywhere
    size = job["batch"]
    for start in itertools.cycle(range(0, len(images) - size + 1, size)):
        yield images[start : start + size], labels[start : start + size].astype(np.int64)


def draw(shapes: Iterable[tuple[int, ...]]) -> list[Array]:
    """Return normal numbers of deviation sqrt(2 / inputs) for kernels (outputs, inputs, …), equal on every machine."""
    numbers = np.random.default_rng(1)
    return [(numbers.normal(size=shape) * np.sqrt(2 / np.prod(shape[1:]))).astype(np.float32) for shape in shapes]
