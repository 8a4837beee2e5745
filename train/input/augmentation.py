"""Changes the images of a batch for training, each by random numbers that depend on the seed, the epoch and the image.

Images are shifted and mirrored as in the DenseNet paper ("+"). Recipes may also cut squares out (Cutout), mix pairs of
images (mixup), and apply random operations of one strength (Cubuk et al., "RandAugment", arXiv 1909.13719).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from train.config.configuration import STRONGEST
from train.data.order import stream

if TYPE_CHECKING:
    from PIL.Image import Image


Images = NDArray[np.uint8]
Targets = NDArray[np.float32]


@dataclass(frozen=True)
class Augmentation:
    pad: int
    flip: bool


@lru_cache(maxsize=2)
def draw_augmentation(augmentation: Augmentation, seed: int, epoch: int, examples: int) -> NDArray[np.uint8]:
    """Return row offset, column offset (each 0 to 2 pad) and mirror (0 or 1) of every example: (examples, 3)."""
    high = [2 * augmentation.pad + 1, 2 * augmentation.pad + 1, 2 if augmentation.flip else 1]
    return stream(seed, "augmentation", epoch).integers(0, high, size=(examples, 3), dtype=np.uint8)


def augment(images: Images, draws: NDArray[np.uint8], pad: int, fill: NDArray[np.uint8]) -> Images:
    """Shift and mirror images of (batch, height, width, channels) by `draws` of (batch, 3).

    Before cropping, each side gets `pad` pixels of value `fill`, (channels,), the data set's mean.
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


def draw_places(seed: int, epoch: int, chosen: NDArray[np.int64], examples: int) -> NDArray[np.float64]:
    """Return a row and a column in [0, 1) for each chosen example of an epoch: (batch, 2)."""
    return stream(seed, "cutout", epoch).random((examples, 2))[chosen]


def cut_out(images: Images, places: NDArray[np.float64], size: int, fill: NDArray[np.uint8]) -> Images:
    """Fill a square around a place of each image, cut at the edges (DeVries and Taylor, "Cutout", arXiv 1708.04552).

    `images` are (batch, height, width, channels). `size` is the height and width of the square in pixels. `places` are
    the row and column of each square's center as shares of height and width: (batch, 2). `fill` is the mean of the data
    set, (channels,), which normalization turns into 0.
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


Fill = tuple[int, ...]
Operation = Callable[["Image", float, Fill], "Image"]
"""Changes an image by a strength from -1 to 1; pixels from outside of it get the value `Fill`, one for each channel."""

SHEAR, ROTATE, TRANSLATE, ENHANCE, BITS = 0.3, 30.0, 150 / 331, 0.9, 4
"""Greatest strengths: pixels to a pixel, degrees, share of a side, factor beyond 1, and bits of 8 that are cut off.

These strengths and the 14 operations are those of AutoAugment (arXiv 1805.09501, table 6), as RandAugment has them.
"""

FINE: Final = 2**16
"""Coefficients are multiples of 1 / `FINE`: the last bit of a sine differs among processors."""


def _move(image: "Image", fill: Fill, *rows: float) -> "Image":
    """Take each pixel (x, y) from (a x + b y + c, d x + e y + f); `rows` are these six, about the image's middle."""
    from PIL.Image import Resampling, Transform

    a, b, c, d, e, f = (round(value * FINE) / FINE for value in rows)
    x, y = image.width / 2, image.height / 2
    numbers = (a, b, c + x - a * x - b * y, d, e, f + y - d * x - e * y)
    color = fill[0] if len(fill) == 1 else fill
    return image.transform(image.size, Transform.AFFINE, numbers, Resampling.NEAREST, fillcolor=color)


def _rotate(image: "Image", strength: float, fill: Fill) -> "Image":
    angle = math.radians(ROTATE * strength)
    return _move(image, fill, math.cos(angle), math.sin(angle), 0, -math.sin(angle), math.cos(angle), 0)


def _enhance(name: str) -> Operation:
    def change(image: "Image", strength: float, _: Fill) -> "Image":
        from PIL import ImageEnhance

        changed: Image = getattr(ImageEnhance, name)(image).enhance(1 + ENHANCE * strength)
        return changed

    return change


def _adjust(name: str, *arguments: Callable[[float], int]) -> Operation:
    def change(image: "Image", strength: float, _: Fill) -> "Image":
        from PIL import ImageOps

        changed: Image = getattr(ImageOps, name)(image, *(convert(abs(strength)) for convert in arguments))
        return changed

    return change


OPERATIONS: Final[dict[str, Operation]] = {
    "identity": lambda image, _, __: image,
    "autocontrast": _adjust("autocontrast"),
    "equalize": _adjust("equalize"),
    "rotate": _rotate,
    "solarize": _adjust("solarize", lambda strength: round(256 - 256 * strength)),
    "color": _enhance("Color"),
    "posterize": _adjust("posterize", lambda strength: 8 - round(BITS * strength)),
    "contrast": _enhance("Contrast"),
    "brightness": _enhance("Brightness"),
    "sharpness": _enhance("Sharpness"),
    "shear-x": lambda image, strength, fill: _move(image, fill, 1, SHEAR * strength, 0, 0, 1, 0),
    "shear-y": lambda image, strength, fill: _move(image, fill, 1, 0, 0, SHEAR * strength, 1, 0),
    "translate-x": lambda image, strength, fill: _move(image, fill, 1, 0, TRANSLATE * strength * image.width, 0, 1, 0),
    "translate-y": lambda image, strength, fill: _move(image, fill, 1, 0, 0, 0, 1, TRANSLATE * strength * image.height),
}
"""By name. The number of an operation is its place here, so a new one goes to the end."""


@lru_cache(maxsize=2)
def draw_operations(seed: int, epoch: int, examples: int, count: int) -> NDArray[np.uint8]:
    """Return operation and direction (0 or 1) of every example's changes in an epoch: (examples, count, 2)."""
    return stream(seed, "randaugment", epoch).integers(
        0, [len(OPERATIONS), 2], size=(examples, count, 2), dtype=np.uint8
    )


def apply_operations(images: Images, draws: NDArray[np.uint8], magnitude: int, fill: NDArray[np.uint8]) -> Images:
    """Change images, (batch, height, width, channels), by operations and directions, (batch, count, 2).

    A strength is linear in the magnitude, up to that of `STRONGEST`.
    """
    values = tuple(fill.tolist())
    return np.stack(
        [_change(image, pairs, magnitude, values) for image, pairs in zip(images, draws.tolist(), strict=True)]
    )


def _change(image: Images, pairs: Sequence[Sequence[int]], magnitude: int, fill: Fill) -> Images:
    from PIL import Image

    changed: Any = Image.fromarray(image[..., 0] if image.shape[-1] == 1 else image)
    operations = list(OPERATIONS.values())
    for number, direction in pairs:
        strength = magnitude / STRONGEST
        changed = operations[number](changed, -strength if direction else strength, fill)
    return np.asarray(changed).reshape(image.shape)
