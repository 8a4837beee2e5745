"""Decodes images of any format and mode into bytes, and fits them to a shape by a fixed rule.

Each image that is read is decoded here, and whatever Pillow raises for it becomes the DataError of its file.
"""

import contextlib
import ctypes
import importlib
import io
import logging
import math
import re
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from train.data.kinds import name_kind
from train.errors import DataError, TooLargeError, ToolkitError
from train.system.files import read_file

if TYPE_CHECKING:
    from PIL.Image import Image

FORMATS: Final = ("JPEG", "PNG", "GIF", "BMP", "WEBP", "TIFF", "PPM", "TGA", "JPEG2000", "AVIF")
"""The formats that are read, as Pillow calls them: those of ``train.config.origin.SUFFIXES``.

No other reader of Pillow is asked, because some start programs.
"""

HEIF: Final = "HEIF"
"""The format of phones, which is read if the package pillow-heif is installed."""

MOST_PIXELS: Final = 80_000_000
"""Largest number of pixels of an image. A small file can hold more, to exhaust the memory of whoever decodes it."""

MOST_BYTES: Final = 256_000_000
"""Largest size of the file of an image."""

SLOW: Final = 10
"""The limit of pixels is divided by this number for an image whose decoder in Pillow is written in Python."""

DENSEST: Final = 128
"""Largest number of pixels for each byte of such a file. A run of at most 255 pixels takes two bytes."""

FREE_PIXELS: Final = 65_536
"""Number of pixels up to which `DENSEST` does not matter."""

STRIPE: Final = 1_000_000
"""Pixels that are put on white at a time."""

RULES: Final = 2
"""Number of the rules below. A change of what they accept or return raises it, and images are looked at again."""

Box = tuple[float, float, float, float]
"""Left, top, right and bottom edge of a part of an image, in pixels."""

Hold = Callable[[int], AbstractContextManager[None]]
"""Waits until so many pixels may be decoded, and holds them meanwhile."""

AREA: Final = (0.08, 1.0)
RATIO: Final = (3 / 4, 4 / 3)
ATTEMPTS: Final = 10
"""Share and proportions of a random part of an image (Szegedy et al., arXiv 1409.4842, section 6)."""

_BITS_PER_SAMPLE, _PHOTOMETRIC, _SAMPLE_FORMAT = 258, 262, 339
_WHITE_IS_ZERO, _SIGNED = 0, 2
"""Tags of TIFF and their values (TIFF 6.0, sections 8 and 19)."""


def decode(source: Path | bytes, name: str = "") -> NDArray[np.uint8]:
    """Decode an image of a path or of bytes into (height, width, channels), with 1 channel for gray and 3 for colour.

    It is turned as its EXIF data says. Transparent pixels are put on white. Of more than 8 bits, the 8 highest of those
    that the file declares are taken, and of an animation the first frame. Raises a DataError that names the image.
    """
    array = np.asarray(load(source, name))
    return array if array.ndim == 3 else array[..., None]


def load(
    source: Path | bytes, name: str = "", most: int = MOST_PIXELS, hold: Hold = lambda _: contextlib.nullcontext()
) -> "Image":
    """Decode as `decode` does, into a Pillow image of mode L or RGB."""
    name = name or (str(source) if isinstance(source, Path) else "the image")
    content = read_file(source, MOST_BYTES, name) if isinstance(source, Path) else source
    if not content:
        raise _refuse(name, "it has no bytes")
    if len(content) > MOST_BYTES:
        raise TooLargeError(
            f"cannot read {name}",
            why=f"its {len(content):,} bytes are more than the {MOST_BYTES:,} that an image may have",
            remedy="scale it down, or remove it",
        )
    pillow = _import_pillow()
    try:
        return _decode(content, name, most, hold)
    except ToolkitError:
        raise
    except pillow.DecompressionBombError:
        raise _refuse_bomb(name, "its pixels are", most) from None
    except pillow.UnidentifiedImageError:
        raise _explain_format(name, content) from None
    except MemoryError as error:
        raise _refuse(name, "there is not enough memory to decode it", "scale it down, or remove it") from error
    except Exception as error:  # Pillow's readers can raise anything for damaged bytes
        raise _refuse(name, f"the image is broken: {str(error) or type(error).__name__}") from error


def _decode(content: bytes, name: str, most: int, hold: Hold) -> "Image":
    with contextlib.ExitStack() as stack:
        flat = _read(content, name, most, lambda pixels: stack.enter_context(hold(pixels)))
        _import_pillow("ImageOps").exif_transpose(flat, in_place=True)
        return flat


def _read(content: bytes, name: str, most: int, begin: Callable[[int], None]) -> "Image":
    with _import_pillow().open(io.BytesIO(content), formats=list_formats()) as image:
        pixels, limit = image.width * image.height, most
        if image.tile and image.tile[0].codec_name in _import_pillow().DECODERS:
            limit = min(most // SLOW, max(FREE_PIXELS, DENSEST * len(content)))
        if pixels > limit:
            kind = f" in {len(content):,} bytes of a kind that takes long to decode" if limit < most else ""
            raise _refuse_bomb(name, f"its {image.width}x{image.height} pixels{kind} are", limit)
        begin(pixels)
        return _flatten(image, content, name)


def list_formats() -> tuple[str, ...]:
    """Return the formats that are read here, as Pillow calls them."""
    return tuple(name for name in (*FORMATS, HEIF) if name in _import_pillow().OPEN)


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


def hash_differences(image: "Image") -> int:
    """Return the 64 bits of an image's difference hash: whether each of 9 by 8 grey points is darker than the next."""
    small = np.asarray(image.convert("L").resize((9, 8), _import_pillow().Resampling.BOX), np.int16)
    return int.from_bytes(np.packbits(small[:, :-1] < small[:, 1:]).tobytes(), "big")


def resized_crop(image: "Image | NDArray[np.uint8]", box: Box, shape: tuple[int, int, int]) -> NDArray[np.uint8]:
    """Scale a part of an image to (height, width, channels), by Pillow's bilinear filter with integer arithmetic."""
    height, width, channels = shape
    image, mode = _wrap(image), "L" if channels == 1 else "RGB"
    image = image if image.mode == mode else image.convert(mode)
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


def _flatten(image: "Image", content: bytes, name: str) -> "Image":
    """Return an image of mode L or RGB, of 8 bits and without transparency, with what the file says about its turn."""
    raw = _read_raw_mode(image)
    image.load()
    tags = getattr(image, "tag_v2", {})
    signed = _read_tag(tags, _SAMPLE_FORMAT, 1) == _SIGNED
    if raw in {"L;2", "L;4"} and isinstance(image.info.get("transparency"), int):  # Pillow scales the pixels alone
        most = 2 ** int(raw[-1]) - 1
        image.info["transparency"] = (image.info["transparency"] & most) * (255 // most)
    if image.mode == "F" or (image.mode.startswith("I") and _read_tag(tags, _BITS_PER_SAMPLE, 16) > 16):
        numbers = "fractions" if image.mode == "F" else "numbers of 32 bits"
        raise _refuse(
            name, f"its pixels are {numbers}, whose range is not known", "save it with 8 or 16 bits for each channel"
        )
    if image.mode.startswith("I"):
        flat = _reduce(image, tags, signed=signed)
    elif raw == "RGB;16B" and isinstance(image.info.get("transparency"), tuple):
        flat = _whiten(image, content)
    elif image.has_transparency_data:
        gray = image.mode in {"1", "L", "LA", "La"} or raw == "LA;16B"
        flat = _put_on_white(image, "L" if gray else "RGB")
    elif image.mode in {"L", "RGB"}:
        flat = image.point([value ^ 0x80 for value in range(256)]) if signed and image.mode == "L" else image.copy()
    else:
        flat = image.convert("L" if image.mode == "1" else "RGB")
    flat.info = {key: value for key, value in image.info.items() if key != "transparency"}
    return flat


def _read_raw_mode(image: Any) -> str:
    """Return Pillow's name for the form of the pixels in a PNG file; an empty text for other formats."""
    told = image.tile[0].args if image.format == "PNG" and image.tile else ""
    return told if isinstance(told, str) else str(told[0])


def _read_tag(tags: Any, tag: int, default: int) -> int:
    value = tags.get(tag, default)
    return int(value[0] if isinstance(value, tuple) else value)


def _reduce(image: "Image", tags: Any, *, signed: bool) -> "Image":
    """Return the 8 higher bits of an image of 12 or 16 bits, some of which Pillow delivers as 32."""
    values: NDArray[Any] = np.asarray(image)
    bits = _read_tag(tags, _BITS_PER_SAMPLE, 16)
    if values.dtype.itemsize > 2:
        values = np.clip(values + (1 << 15 if signed else 0), 0, (1 << 16) - 1)
    reduced = np.minimum(values >> (bits - 8), 255).astype(np.uint8)
    if _read_tag(tags, _PHOTOMETRIC, 1) == _WHITE_IS_ZERO:
        reduced = ~reduced
    transparent = image.info.get("transparency")
    if isinstance(transparent, int):
        reduced[values == transparent] = 255
    flat: Image = _import_pillow().fromarray(reduced)
    return flat


def _whiten(image: "Image", content: bytes) -> "Image":
    """Return a PNG with 16 bits a channel, with white in place of its transparent colour.

    A pixel is transparent only if all 16 bits of each channel fit, and Pillow keeps the higher 8 alone. The lower 8 are
    what it keeps of the same file when it reads the bytes of each number in the other order.
    """
    flat = np.array(image)
    with _import_pillow().open(io.BytesIO(content), formats=["PNG"]) as again:
        again.tile = [again.tile[0]._replace(args="RGB;16L")]
        lower = np.asarray(again)
    transparent = np.array(image.info["transparency"])
    flat[((flat == transparent >> 8) & (lower == transparent & 0xFF)).all(-1)] = 255
    whitened: Image = _import_pillow().fromarray(flat)
    return whitened


def _put_on_white(image: "Image", mode: str) -> "Image":
    pillow = _import_pillow()
    flat: Image = pillow.new(mode, image.size)
    rows = max(1, STRIPE // image.width)
    for top in range(0, image.height, rows):
        part = image.crop((0, top, image.width, min(top + rows, image.height))).convert("RGBA")
        white = pillow.new("RGBA", part.size, "white")
        flat.paste(pillow.alpha_composite(white, part).convert(mode), (0, top))
    return flat


@cache
def _import_pillow(name: str = "Image") -> ModuleType:
    """Return a module of Pillow, whose readers say nothing on standard error: a DataError says what matters."""
    from PIL import Image, ImageOps

    Image.init()
    with contextlib.suppress(Exception):  # also if the package is there and damaged
        importlib.import_module("pillow_heif").register_heif_opener()
    warnings.filterwarnings("ignore", module=r"PIL\.")
    logging.getLogger("PIL").addHandler(logging.NullHandler())
    _silence_tiff()
    return {"Image": Image, "ImageOps": ImageOps}[name]


def _silence_tiff() -> None:
    """Take from libtiff its handlers of messages, which write to standard error from C."""
    with contextlib.suppress(OSError, AttributeError):  # no list of libraries, or a libtiff inside of another
        maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="surrogateescape")
        for library in set(re.findall(r"/\S*/libtiff[^/\s]*$", maps, re.MULTILINE)):
            for function in ("TIFFSetWarningHandler", "TIFFSetErrorHandler"):
                setter = getattr(ctypes.CDLL(library), function)
                setter.argtypes, setter.restype = [ctypes.c_void_p], ctypes.c_void_p
                setter(None)


def _explain_format(name: str, content: bytes) -> DataError:
    """Return the error of bytes that no reader takes; it says what they are, if their beginning tells it."""
    kind = name_kind(content)
    if kind.use == "heif" and HEIF not in list_formats():
        why = f"it is a {kind.name} file, which is read only where the Python package pillow-heif is installed"
        install = "install that into an environment of your own with this TensorFlow: pip install pillow-heif"
        return _refuse(name, why, f"{kind.remedy}, or {install}")
    if kind.use in {"read", "heif"}:
        why = f"it begins as a {kind.name} file, and is broken or of a kind that is not read"
        return _refuse(name, why, "save it anew as PNG or JPEG, or remove it")
    if kind.use == "convert":
        why = f"it is a file of another format ({kind.name}), which is not read"
        return _refuse(name, why, f"{kind.remedy}, or remove it")
    if kind.name:
        why = f"it is {kind.described}, no image that can be read"
        return _refuse(name, why, f"{kind.remedy}, or remove it" if kind.remedy else _REPLACE)
    return _refuse(name, f"these {len(content)} bytes are no image that can be read")


_REPLACE: Final = "replace it by a whole image, or remove it"


def _refuse(name: str, why: str, remedy: str = _REPLACE) -> DataError:
    return DataError(f"cannot read {name}", why=why, remedy=remedy)


def _refuse_bomb(name: str, what: str, most: int) -> DataError:
    return TooLargeError(
        f"cannot read {name}",
        why=f"{what} more than the {most:,} that an image may have",
        remedy="scale it down, or remove it",
    )
