"""Makes the batches of a run, each by its step alone, without state."""

import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from train.config.configuration import Schedule, TrainConfig
from train.data import Dataset, Pictures
from train.data.order import count_steps, locate, select
from train.input.augmentation import (
    Augmentation,
    apply_operations,
    augment,
    cut_out,
    draw_augmentation,
    draw_operations,
    draw_places,
    mix,
)

WARM_UP = 0.3


def rate_at(schedule: Schedule, highest: float, step: int, total: int, *, warm_up: int = 0) -> float:
    """Return the learning rate of a step. It first rises for `warm_up` steps (Goyal et al., arXiv 1706.02677)."""
    if step < warm_up:
        return highest * (step + 1) / warm_up
    done = (step - warm_up) / max(1, total - warm_up)
    match schedule:
        case "constant":
            return highest
        case "steps":
            return highest * (1 if done < 0.5 else 0.1 if done < 0.75 else 0.01)
        case "cosine":
            return highest * (1 + math.cos(math.pi * done)) / 2
        case "one-cycle":
            if done < WARM_UP:
                return highest * (0.04 + 0.96 * done / WARM_UP)
            return highest * (1 + math.cos(math.pi * (done - WARM_UP) / (1 - WARM_UP))) / 2


Batch = tuple[NDArray[Any], NDArray[Any], NDArray[Any]]
"""Images, labels and learning rate of a step; with images on the device, indices, augmentation and learning rate."""


@dataclass(frozen=True)
class Batches:
    dataset: Dataset
    config: TrainConfig
    rows: slice = field(default_factory=lambda: slice(None))  # the part of each batch that this worker makes

    @property
    def size(self) -> int:
        return min(self.config.batch_size, len(self.dataset.train))

    @property
    def steps_per_epoch(self) -> int:
        return count_steps(len(self.dataset.train), self.config.batch_size)

    @property
    def total(self) -> int:
        return self.config.steps or self.config.epochs * self.steps_per_epoch

    def indices(self, step: int) -> NDArray[np.int64]:
        return select(self.config.seed, step, len(self.dataset.train), self.config.batch_size)

    @property
    def augmentation(self) -> Augmentation | None:
        flip = self.config.flip and self.config.facts["flip"]
        return Augmentation(self.config.pad, flip) if self.config.augment else None

    def _take(self, step: int) -> NDArray[np.int64]:
        chosen = self.indices(step)
        return chosen if self.config.mixup else chosen[self.rows]  # mixup needs the whole batch

    def choose(self, step: int) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
        """Return the indices of a step's training examples, (batch,), and their augmentation, (batch, 3)."""
        chosen, examples = self._take(step), len(self.dataset.train)
        if not self.augmentation:
            return chosen, np.zeros((len(chosen), 3), np.uint8)
        epoch, _ = locate(step, examples, self.config.batch_size)
        return chosen, draw_augmentation(self.augmentation, self.config.seed, epoch, examples)[chosen]

    def make(self, step: int) -> tuple[NDArray[np.uint8], NDArray[np.int32] | NDArray[np.float32]]:
        """Return the images of a step, and their labels (batch,), or with mixup their targets (batch, classes)."""
        config, examples = self.config, len(self.dataset.train)
        epoch, _ = locate(step, examples, config.batch_size)
        chosen, fill = self._take(step), np.rint(self.dataset.mean).astype(np.uint8)
        images, labels = self._augment(step, epoch, fill), self.dataset.train.labels[chosen]
        if config.randaugment:
            draws = draw_operations(config.seed, epoch, examples, config.randaugment)[chosen]
            images = apply_operations(images, draws, config.magnitude, fill)
        if config.cutout:
            images = cut_out(images, draw_places(config.seed, epoch, chosen, examples), config.cutout, fill)
        if not config.mixup:
            return images, labels
        targets = np.eye(config.classes, dtype=np.float32)[labels]
        mixed, shared = mix(images, targets, config.mixup, config.seed, step)
        return mixed[self.rows], shared[self.rows]

    def _augment(self, step: int, epoch: int, fill: NDArray[np.uint8]) -> NDArray[np.uint8]:
        images = self.dataset.train.images
        if self.augmentation and self.config.resized and isinstance(images, Pictures):
            return images.crop(self._take(step), self.config.seed, epoch, flip=self.augmentation.flip)
        chosen, draws = self.choose(step)
        chosen_images: NDArray[np.uint8] = images[chosen]
        return augment(chosen_images, draws, self.augmentation.pad, fill) if self.augmentation else chosen_images

    def rate(self, step: int) -> float:
        warm_up = round(self.config.warm_up * self.steps_per_epoch)
        return rate_at(self.config.schedule, self.config.learning_rate, step, self.total, warm_up=warm_up)

    def iterate(self, start: int, *, resident: bool = False) -> Iterator[Batch]:
        """Yield each batch from step `start` on, as `make` returns it, or as `choose` does with `resident`."""
        make = self.choose if resident else self.make
        for step in range(start, self.total):
            yield *make(step), np.asarray(self.rate(step), np.float32)


def make_ahead(batches: Iterator[Batch]) -> Iterator[Batch]:
    """Yield the same batches. A thread makes the next one while the caller works on the current one."""
    with ThreadPoolExecutor(1, thread_name_prefix="batches") as pool:
        coming = pool.submit(next, batches, None)
        while (batch := coming.result()) is not None:
            coming = pool.submit(next, batches, None)
            yield batch
