"""Which examples a step sees: a pure function of (seed, step), so that a resumed run sees what an unbroken one would.

Streams come from NumPy's Philox, a counter-based generator (Salmon et al., "Parallel random numbers: as easy as 1, 2,
3", SC 2011): its key is the seed and what the numbers are for, hence there is no state to save.
"""

from functools import lru_cache
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

Purpose = Literal["order", "augmentation", "split", "dropout", "weights"]
_PURPOSES: Final[dict[Purpose, int]] = {"order": 1, "augmentation": 2, "split": 3, "dropout": 4, "weights": 5}


def stream(seed: int, purpose: Purpose, index: int = 0) -> np.random.Generator:
    """A generator that depends on nothing but its arguments; `index` is the epoch, the layer, whatever counts."""
    return np.random.Generator(np.random.Philox(key=[seed, _PURPOSES[purpose]], counter=[0, 0, 0, index]))


@lru_cache(maxsize=2)
def permute(seed: int, epoch: int, examples: int) -> NDArray[np.int64]:
    """The order of all examples in an epoch: (examples,)."""
    order = stream(seed, "order", epoch).permutation(examples)
    order.flags.writeable = False
    return order


def count_steps(examples: int, batch_size: int) -> int:
    """Steps in an epoch. A remainder smaller than a batch waits for another epoch's order."""
    return max(1, examples // batch_size)


def locate(step: int, examples: int, batch_size: int) -> tuple[int, int]:
    """The epoch a step belongs to and its place there, both from 0."""
    return divmod(step, count_steps(examples, batch_size))


def select(seed: int, step: int, examples: int, batch_size: int) -> NDArray[np.int64]:
    """Indices of the examples of a step: (batch_size,), fewer only where the data set itself is smaller."""
    epoch, place = locate(step, examples, batch_size)
    return permute(seed, epoch, examples)[place * batch_size : (place + 1) * batch_size]
