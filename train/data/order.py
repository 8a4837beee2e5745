"""Chooses the examples of each step by (seed, step) alone, so that a resumed run takes the same ones.

NumPy's Philox is counter-based (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011). Its key is the
seed and the purpose, so there is no state to save.
"""

from functools import lru_cache
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

Purpose = Literal["order", "augmentation", "split", "dropout", "weights", "crop", "cutout", "mixup", "randaugment"]
_PURPOSES: Final[dict[Purpose, int]] = {
    "order": 1,
    "augmentation": 2,
    "split": 3,
    "dropout": 4,
    "weights": 5,
    "crop": 6,
    "cutout": 7,
    "mixup": 8,
    "randaugment": 9,
}


def stream(seed: int, purpose: Purpose, index: int = 0, example: int = 0) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=[seed, _PURPOSES[purpose]], counter=[0, example, 0, index]))


@lru_cache(maxsize=2)
def permute(seed: int, epoch: int, examples: int) -> NDArray[np.int64]:
    """Return the order of all examples in an epoch: (examples,)."""
    order = stream(seed, "order", epoch).permutation(examples)
    order.flags.writeable = False
    return order


def count_steps(examples: int, batch_size: int) -> int:
    """Return the number of steps in an epoch. The epoch leaves out a remainder that is smaller than a batch."""
    return max(1, examples // batch_size)


def locate(step: int, examples: int, batch_size: int) -> tuple[int, int]:
    """Return the epoch of a step and the step's number in that epoch, both counted from 0."""
    return divmod(step, count_steps(examples, batch_size))


def select(seed: int, step: int, examples: int, batch_size: int) -> NDArray[np.int64]:
    """Return the indices of a step's examples: (batch_size,), or fewer if the data set is smaller."""
    epoch, number = locate(step, examples, batch_size)
    return permute(seed, epoch, examples)[number * batch_size : (number + 1) * batch_size]
