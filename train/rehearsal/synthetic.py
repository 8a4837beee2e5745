"""Images of a data set's shape: random bytes, in place of the data set."""

from collections.abc import Callable
from typing import Final

import numpy as np

from train.config import TrainConfig, read_table
from train.data import Dataset, Split

WATCHED: Final = 512
"""Test examples: two batches of the evaluation are enough to see it."""


def make_loader(steps: int) -> Callable[[TrainConfig], Dataset]:
    """A function in place of `train.data.load`: images of the configuration's shape, enough for so many steps."""

    def load(config: TrainConfig) -> Dataset:
        count = max(int(read_table("datasets")[config.dataset]["examples"]), (steps + 1) * config.batch_size)
        numbers = np.random.default_rng(config.seed)

        def draw(count: int) -> Split:
            images = np.frombuffer(numbers.bytes(count * int(np.prod(config.shape))), np.uint8)
            labels = numbers.integers(config.classes, size=count, dtype=np.int32)
            return Split(images.reshape(count, *config.shape), labels)

        names = tuple(str(index) for index in range(config.classes))
        return Dataset(draw(count), draw(min(count, WATCHED)), names, "random bytes")

    return load
