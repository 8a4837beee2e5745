"""The standard augmentation of small images ("+" in the DenseNet paper): shift by padding and cropping, and mirror.

What happens to an example depends on (seed, epoch, example) alone, whatever batch it is in.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from train.order import stream


@dataclass(frozen=True)
class Augmentation:
    """How far to shift, in pixels, and whether to mirror."""

    pad: int
    flip: bool


@lru_cache(maxsize=2)
def draw(augmentation: Augmentation, seed: int, epoch: int, examples: int) -> NDArray[np.uint8]:
    """Row offset, column offset (each 0 … 2 pad) and mirror (0 or 1) of every example in an epoch: (examples, 3)."""
    high = [2 * augmentation.pad + 1, 2 * augmentation.pad + 1, 2 if augmentation.flip else 1]
    return stream(seed, "augmentation", epoch).integers(0, high, size=(examples, 3), dtype=np.uint8)


def apply(images: NDArray[np.uint8], draws: NDArray[np.uint8], pad: int, fill: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Shift and mirror a batch.

    Args:
        images: (batch, height, width, channels).
        draws: (batch, 3) as `draw` gives them.
        pad: pixels added on each side before cropping.
        fill: (channels,), the value of added pixels; the data set's mean, which normalisation turns to about zero.
    """
    count, height, width, channels = images.shape
    padded = np.empty((count, height + 2 * pad, width + 2 * pad, channels), np.uint8)
    padded[:] = fill
    padded[:, pad : pad + height, pad : pad + width] = images
    rows = draws[:, 0, None] + np.arange(height)
    columns = np.arange(width)
    columns = draws[:, 1, None] + np.where(draws[:, 2, None] == 1, columns[::-1], columns)
    cropped: NDArray[np.uint8] = padded[np.arange(count)[:, None, None], rows[:, :, None], columns[:, None, :]]
    return cropped
