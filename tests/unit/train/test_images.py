import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from train.data import images
from train.errors import DataError

RED, GREEN = (255, 0, 0), (0, 255, 0)


def encode(image: Image.Image, kind: str = "PNG", **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def make_exif(turn: int) -> Image.Exif:
    exif = Image.Exif()
    exif[0x0112] = turn
    return exif


def make_animation() -> bytes:
    frames = [Image.new("RGB", (4, 4), color) for color in (RED, GREEN)]
    return encode(frames[0], "GIF", save_all=True, append_images=frames[1:])


PALETTE = Image.new("RGB", (4, 4), RED).convert("P", palette=Image.Palette.ADAPTIVE)
HIGH = Image.fromarray(np.full((4, 4), 0x80FF, np.uint16))


@pytest.mark.parametrize(
    ("content", "pixel"),
    [
        pytest.param(encode(Image.new("RGB", (4, 4), RED)), RED, id="colour"),
        pytest.param(encode(Image.new("L", (4, 4), 7)), (7,), id="gray"),
        pytest.param(encode(Image.new("1", (4, 4), 1)), (255,), id="one bit"),
        pytest.param(encode(Image.new("RGBA", (4, 4), (255, 0, 0, 0))), (255, 255, 255), id="transparent"),
        pytest.param(encode(Image.new("LA", (4, 4), (0, 0))), (255,), id="transparent gray"),
        pytest.param(encode(PALETTE), RED, id="palette"),
        pytest.param(encode(PALETTE, transparency=0), (255, 255, 255), id="transparent palette"),
        pytest.param(encode(Image.new("CMYK", (4, 4), (0, 255, 255, 0)), "TIFF"), RED, id="CMYK"),
        pytest.param(encode(HIGH), (0x80,), id="16 bits"),
        pytest.param(make_animation(), RED, id="animation"),
        pytest.param(encode(Image.new("RGB", (4, 4), RED), "WEBP", lossless=True), RED, id="WebP"),
    ],
)
def test_images_of_every_mode_are_decoded(content: bytes, pixel: tuple[int, ...]) -> None:
    decoded = images.decode(content)
    assert decoded.dtype == np.uint8
    assert decoded.shape == (4, 4, len(pixel))
    assert (decoded == pixel).all()


def test_an_image_is_turned_as_its_exif_data_says() -> None:
    upright = Image.new("RGB", (4, 2), RED)
    upright.putpixel((0, 0), GREEN)
    decoded = images.decode(encode(upright, exif=make_exif(6)))
    assert decoded.shape == (4, 2, 3)
    assert tuple(decoded[0, 1]) == GREEN


def make_bomb() -> bytes:
    return encode(Image.new("1", (30_000, 30_000)))


def cut_short() -> bytes:
    pixels = np.random.default_rng(0).integers(0, 256, (64, 64, 3)).astype(np.uint8)
    return encode(Image.fromarray(pixels), "JPEG")[:-500]


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: b"", "no bytes"),
        (lambda: b"no image at all", "no image that can be read"),
        (cut_short, "broken"),
        (make_bomb, "80,000,000"),
        (lambda: encode(Image.new("1", (9000, 9000))), "9000x9000"),
        (lambda: encode(Image.new("F", (4, 4)), "TIFF"), "range is not known"),
    ],
)
def test_a_bad_image_is_named(make: Callable[[], bytes], why: str, tmp_path: Path) -> None:
    path = tmp_path / "bad 图.png"
    path.write_bytes(make())
    with pytest.raises(DataError, match=r"bad 图\.png") as caught:
        images.decode(path)
    assert why in caught.value.why


def test_a_missing_image_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.png"):
        images.decode(tmp_path / "none.png")


def test_images_are_fitted_to_a_shape() -> None:
    pixels = np.zeros((8, 16, 3), np.uint8)
    pixels[:, 3:13] = 200
    same = images.center_crop(pixels, (8, 16, 3))
    assert (same == pixels).all()
    assert (images.center_crop(pixels, (4, 4, 3)) == 200).all()
    assert images.center_crop(pixels, (8, 8, 1)).shape == (8, 8, 1)
    assert images.center_crop(pixels[..., :1], (8, 8, 3)).shape == (8, 8, 3)


def test_a_center_crop_keeps_a_share() -> None:
    pixels = np.zeros((16, 16, 1), np.uint8)
    pixels[2:14, 2:14] = 255
    assert images.center_crop(pixels, (12, 12, 1), share=0.75).min() == 255
    assert images.center_crop(pixels, (12, 12, 1)).min() == 0
