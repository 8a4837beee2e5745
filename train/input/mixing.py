"""Changes the images of a batch beyond shift and mirror: squares cut out, and pairs of images mixed."""

import numpy as np
from numpy.typing import NDArray

from train.data.order import stream

Images = NDArray[np.uint8]
Targets = NDArray[np.float32]


def draw_places(seed: int, epoch: int, chosen: NDArray[np.int64], examples: int) -> NDArray[np.float64]:
    """Return a row and a column in [0, 1) for each chosen example of an epoch: (batch, 2)."""
    return stream(seed, "cutout", epoch).random((examples, 2))[chosen]


def cut_out(images: Images, places: NDArray[np.float64], size: int, fill: NDArray[np.uint8]) -> Images:
    """Fill a square around a place of each image, cut at the edges (DeVries and Taylor, "Cutout", arXiv 1708.04552).

    Args:
        images: (batch, height, width, channels).
        size: height and width of the square in pixels.
        places: row and column of each square's center as shares of height and width: (batch, 2).
        fill: the value that is the mean of the data set, (channels,), which normalization turns into 0.
    """
    inside = []
    for axis in (1, 2):
        first = np.floor(places[:, axis - 1] * images.shape[axis]).astype(np.int64) - size // 2
        pixels = np.arange(images.shape[axis])
        inside.append((pixels >= first[:, None]) & (pixels < first[:, None] + size))
    square = inside[0][:, :, None] & inside[1][:, None, :]
    return np.where(square[..., None], fill, images)


def mix(images: Images, targets: Targets, strength: float, seed: int, step: int) -> tuple[Images, Targets]:
    """Mix each image of a batch, and its target, with those of another (Zhang et al., "mixup", arXiv 1710.09412).

    One share for the batch is drawn from the beta distribution (strength, strength), and is that of the first image of
    each pair. Pixels are rounded to bytes, which the paper does not do.
    """
    draws = stream(seed, "mixup", step)
    share = np.float32(draws.beta(strength, strength))
    partner = draws.permutation(len(images))
    mixed = share * images.astype(np.float32) + (1 - share) * images[partner].astype(np.float32)
    return np.rint(mixed).astype(np.uint8), share * targets + (1 - share) * targets[partner]
