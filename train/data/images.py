"""Decodes images of any format and mode into bytes, and fits them to a shape by a fixed rule."""

import io
import math
import struct
import warnings
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from train.errors import DataError, TooLargeError

if TYPE_CHECKING:
    from PIL.Image import Image

MOST_PIXELS: Final = 80_000_000
"""Largest number of pixels of an image. A small file can hold more, to exhaust the memory of whoever decodes it."""

RULES: Final = 1
"""Number of the rules below. A change of what they accept or return raises it, and images are looked at again."""

BROKEN: Final = (OSError, LookupError, TypeError, ValueError, SyntaxError, MemoryError, ArithmeticError, struct.error)
"""Exceptions that Pillow's readers can raise for damaged bytes."""

Box = tuple[float, float, float, float]
"""Left, top, right and bottom edge of a part of an image, in pixels."""

AREA: Final = (0.08, 1.0)
RATIO: Final = (3 / 4, 4 / 3)
ATTEMPTS: Final = 10
"""Share and proportions of a random part of an image (Szegedy et al., arXiv 1409.4842, section 6)."""


def decode(source: Path | bytes, name: str = "") -> NDArray[np.uint8]:
    """Decode an image of a path or of bytes into (height, width, channels), with 1 channel for gray and 3 for colour.

    It is turned as its EXIF data says. Transparent pixels are put on white, 16 bits become the 8 higher ones, and of an
    animation the first frame is taken. Raises a DataError that names the image.
    """
    array = np.asarray(load(source, name))
    return array if array.ndim == 3 else array[..., None]


def load(source: Path | bytes, name: str = "", most: int = MOST_PIXELS, kinds: list[str] | None = None) -> "Image":
    """Decode as `decode` does, into a Pillow image of mode L or RGB; if given, only `kinds`, as Pillow has them."""
    name = name or (str(source) if isinstance(source, Path) else "the image")
    pillow = _import_pillow()
    try:
        content = source.read_bytes() if isinstance(source, Path) else source
    except OSError as error:
        raise DataError(f"cannot read {name}", why=error.strerror or str(error)) from error
    if not content:
        raise _refuse(name, "it has no bytes")
    try:
        with pillow.open(io.BytesIO(content), formats=kinds) as image:
            pixels = image.width * image.height
            if pixels > most:
                raise _refuse_bomb(name, f"its {image.width}x{image.height} pixels are", most)
            turned: Image = _import_pillow("ImageOps").exif_transpose(image)
            return _convert(turned, pillow)
    except pillow.DecompressionBombError:
        raise _refuse_bomb(name, "its pixels are", most) from None
    except pillow.UnidentifiedImageError:
        raise _refuse(name, f"these {len(content)} bytes are no image that can be read") from None
    except BROKEN as error:
        raise _refuse(name, f"the image is broken: {error or type(error).__name__}") from error


def center_crop(
    image: "Image | NDArray[np.uint8]", shape: tuple[int, int, int], share: float = 1.0
) -> NDArray[np.uint8]:
    """Crop the largest part of this shape's proportions from the center, and scale it to (height, width, channels).

    `share` is the part of the sides that is kept. An image that has the shape already is returned as it is.
    """
    image = _wrap(image)
    height, width, _ = shape
    scale = share * min(image.width / width, image.height / height)
    left, top = (image.width - scale * width) / 2, (image.height - scale * height) / 2
    return resized_crop(image, (left, top, left + scale * width, top + scale * height), shape)


def resized_crop(image: "Image | NDArray[np.uint8]", box: Box, shape: tuple[int, int, int]) -> NDArray[np.uint8]:
    """Scale a part of an image to (height, width, channels), by Pillow's bilinear filter with integer arithmetic."""
    height, width, channels = shape
    image = _wrap(image).convert("L" if channels == 1 else "RGB")
    if (image.width, image.height) != (width, height) or box != (0, 0, width, height):
        image = image.resize((width, height), _import_pillow().Resampling.BILINEAR, box=box)
    return np.asarray(image).reshape(shape)


def draw_crop(numbers: np.random.Generator, width: int, height: int) -> tuple[Box, bool]:
    """Return a random part of an image and whether to mirror it."""
    mirrored = bool(numbers.integers(2))
    for _ in range(ATTEMPTS):
        area = width * height * numbers.uniform(*AREA)
        # NumPy's functions choose their algorithm by the processor, and round differently.
        ratio = math.exp(numbers.uniform(math.log(RATIO[0]), math.log(RATIO[1])))
        across, down = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < across <= width and 0 < down <= height:
            left, top = int(numbers.integers(width - across + 1)), int(numbers.integers(height - down + 1))
            return (left, top, left + across, top + down), mirrored
    x, y = width / 2, height / 2
    half_width, half_height = min(width, height * RATIO[1]) / 2, min(height, width / RATIO[0]) / 2
    return (x - half_width, y - half_height, x + half_width, y + half_height), mirrored


def _wrap(image: "Image | NDArray[np.uint8]") -> "Image":
    if not isinstance(image, np.ndarray):
        return image
    wrapped: Image = _import_pillow().fromarray(image[..., 0] if image.shape[-1] == 1 else image)
    return wrapped


def _convert(image: "Image", pillow: Any) -> "Image":
    if image.mode in {"L", "RGB"} and not image.has_transparency_data:
        image.load()
        return image.copy()
    if image.mode.startswith("I"):  # 16 bits, which some formats deliver as 32
        values = np.asarray(image).astype(np.int64)
        converted: Image = pillow.fromarray((np.clip(values, 0, 2**16 - 1) >> 8).astype(np.uint8))
        return converted
    if image.mode == "F":
        raise ValueError("its pixels are fractions, whose range is not known")
    if not image.has_transparency_data:
        return image.convert("L" if image.mode == "1" else "RGB")
    gray = image.mode in {"L", "LA", "La"}
    color = image.convert("RGBA")
    white = pillow.new("RGBA", color.size, "white")
    return pillow.alpha_composite(white, color).convert("L" if gray else "RGB")  # type: ignore[no-any-return]


@cache
def _import_pillow(name: str = "Image") -> ModuleType:
    from PIL import Image, ImageOps

    # The limit above is lower than the one that this warning is about.
    warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)
    return {"Image": Image, "ImageOps": ImageOps}[name]


def _refuse(name: str, why: str) -> DataError:
    return DataError(f"cannot read {name}", why=why, remedy="replace it by a whole image, or remove it")


def _refuse_bomb(name: str, what: str, most: int) -> DataError:
    return TooLargeError(
        f"cannot read {name}",
        why=f"{what} more than the {most:,} that an image may have",
        remedy="scale it down, or remove it",
    )
