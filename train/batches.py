"""The batches of a run as a pure function of the step: nothing to save, nothing to rewind."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from train import augmentation
from train.augmentation import Augmentation
from train.config import TrainConfig, read_table
from train.data import Dataset
from train.order import count_steps, locate, select
from train.schedule import rate_at

Batch = tuple[NDArray[np.uint8], NDArray[np.int32], NDArray[Any]]
"""Images, labels and the learning rate of a step."""


@dataclass(frozen=True)
class Batches:
    """The batches of a run as a pure function of the step."""

    dataset: Dataset
    config: TrainConfig

    @property
    def size(self) -> int:
        """Examples in a step: fewer than asked for where the data set itself is smaller."""
        return min(self.config.batch_size, len(self.dataset.train))

    @property
    def steps_per_epoch(self) -> int:
        """Steps in an epoch."""
        return count_steps(len(self.dataset.train), self.config.batch_size)

    @property
    def total(self) -> int:
        """Steps in the run."""
        return self.config.steps or self.config.epochs * self.steps_per_epoch

    def indices(self, step: int) -> NDArray[np.int64]:
        """Which training examples a step sees, `step` counted from 0."""
        return select(self.config.seed, step, len(self.dataset.train), self.config.batch_size)

    def make(self, step: int) -> tuple[NDArray[np.uint8], NDArray[np.int32]]:
        """Images and labels of a step, augmented."""
        chosen = self.indices(step)
        images, labels = self.dataset.train.images[chosen], self.dataset.train.labels[chosen]
        if not self.config.augment:
            return images, labels
        facts = read_table("datasets")[self.config.dataset]
        kind = Augmentation(facts["pad"], facts["flip"])
        epoch, _ = locate(step, len(self.dataset.train), self.config.batch_size)
        draws = augmentation.draw(kind, self.config.seed, epoch, len(self.dataset.train))[chosen]
        return augmentation.apply(images, draws, kind.pad, np.rint(self.dataset.mean).astype(np.uint8)), labels

    def rate(self, step: int) -> float:
        """Learning rate of a step, `step` counted from 0."""
        return rate_at(self.config.schedule, self.config.learning_rate, step, self.total)

    def iterate(self, start: int) -> Iterator[Batch]:
        """All batches from a step to the end."""
        for step in range(start, self.total):
            images, labels = self.make(step)
            yield images, labels, np.asarray(self.rate(step), np.float32)


def make_ahead(batches: Iterator[Batch]) -> Iterator[Batch]:
    """The same batches, the next one made by a thread while the caller works on the one before."""
    with ThreadPoolExecutor(1, thread_name_prefix="batches") as pool:
        coming = pool.submit(next, batches, None)
        while (batch := coming.result()) is not None:
            coming = pool.submit(next, batches, None)
            yield batch
