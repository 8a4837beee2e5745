"""Changes images by random operations of one strength (Cubuk et al., "RandAugment", arXiv 1909.13719).

The 14 operations and their greatest strengths are those of AutoAugment (arXiv 1805.09501, table 6), which the paper
takes over. A strength is linear in the magnitude, up to that of `STRONGEST`.
"""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from train.config.configuration import STRONGEST
from train.data.order import stream

if TYPE_CHECKING:
    from PIL.Image import Image

Images = NDArray[np.uint8]
Fill = tuple[int, ...]
Operation = Callable[["Image", float, Fill], "Image"]
"""Changes an image by a strength from -1 to 1; pixels from outside of it get the value `Fill`, one for each channel."""

SHEAR, ROTATE, TRANSLATE, ENHANCE, BITS = 0.3, 30.0, 150 / 331, 0.9, 4
"""Greatest strengths: pixels to a pixel, degrees, share of a side, factor beyond 1, and bits of 8 that are cut off."""

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
def draw(seed: int, epoch: int, examples: int, count: int) -> NDArray[np.uint8]:
    """Return operation and direction (0 or 1) of every example's changes in an epoch: (examples, count, 2)."""
    return stream(seed, "randaugment", epoch).integers(
        0, [len(OPERATIONS), 2], size=(examples, count, 2), dtype=np.uint8
    )


def change(images: Images, draws: NDArray[np.uint8], magnitude: int, fill: NDArray[np.uint8]) -> Images:
    """Change images, (batch, height, width, channels), by operations and directions, (batch, count, 2)."""
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
