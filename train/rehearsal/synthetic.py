"""Images of any shape without a data set: random bytes, for rehearsals only."""

from collections.abc import Callable
from typing import Final

import numpy as np

from train.config import TrainConfig, read_table
from train.data import Dataset, Split
from train.errors import UsageError

NAME: Final = "synthetic"
"""The data set whose shape is given on the command line."""

EXAMPLES: Final = 1024
"""Training examples of `NAME`. The other data sets keep their own number, for some of them live on the device."""

WATCHED: Final = 512
"""Test examples: two batches of the evaluation are enough to see it."""


def register(shape: str, classes: int) -> None:
    """Make `NAME` a data set of this process.

    Args:
        shape: height, width and channels as ``224x224x3``.
        classes: number of classes.

    Raises:
        UsageError: one of them makes no sense.
    """
    parts = shape.split("x")
    if len(parts) != 3 or not all(part.isdecimal() and int(part) for part in parts) or classes < 2:
        raise UsageError(
            f"not a data shape: {shape!r} with {classes} classes",
            remedy="write it as HEIGHTxWIDTHxCHANNELS, for example --shape 224x224x3 --classes 1000",
        )
    height, width, channels = (int(part) for part in parts)
    small = height < 32
    read_table("datasets")[NAME] = {
        "shape": [height, width, channels],
        "classes": classes,
        "examples": EXAMPLES,
        "model": "bc-22-12" if small else "121" if height >= 64 else "bc-100-12",
        "recipe": "quick",
        "epochs": {"paper": 1, "quick": 1, "adam": 1},
        "augment": True,
        "pad": height // 8,
        "flip": True,
    }


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
