import io
import json
import os
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, PngImagePlugin

from train.data import images
from train.errors import DataError, TooLargeError

ROOT = Path(__file__).parents[3]

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
        pytest.param(encode(Image.new("RGBA", (4, 4), (255, 0, 0, 0))), (255, 255, 255), id="transparent"),
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


def make_png(bits: int, color: int, row: bytes, width: int, clear: bytes) -> bytes:
    """Return a PNG of one row; `color` is 0 for gray and 2 for RGB, `clear` its transparent colour."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, 1, bits, color, 0, 0, 0))
    data = chunk(b"tRNS", clear) + chunk(b"IDAT", zlib.compress(b"\0" + row)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + head + data


@pytest.mark.parametrize(
    ("content", "row"),
    [
        pytest.param(make_png(16, 0, b"\x9c\x40\x9c\x41", 2, b"\x9c\x40"), [[255], [156]], id="gray of 16 bits"),
        pytest.param(
            make_png(16, 2, b"\1\2\3\4\5\6\1\2\3\4\5\7", 2, b"\1\2\3\4\5\6"),
            [[255, 255, 255], [1, 3, 5]],
            id="colour of 16 bits",
        ),
        pytest.param(make_png(8, 2, b"\1\2\3\4\5\6", 2, b"\0\1\0\2\0\3"), [[255] * 3, [4, 5, 6]], id="colour"),
        pytest.param(make_png(2, 0, b"\x18", 4, b"\0\2"), [[0], [85], [255], [0]], id="gray of 2 bits"),
        pytest.param(make_png(1, 0, b"\x40", 3, b"\0\0"), [[255], [255], [255]], id="black of 1 bit"),
    ],
)
def test_a_transparent_colour_is_white_and_its_neighbours_stay(content: bytes, row: list[list[int]]) -> None:
    assert images.decode(content)[0].tolist() == row


def make_tiff(bits: int, values: bytes, count: int, sample_format: int = 1, photometric: int = 1) -> bytes:
    """Return a TIFF of one row of gray pixels."""
    tags = {256: count, 257: 1, 258: bits, 259: 1, 262: photometric, 273: 200, 277: 1, 278: 1, 279: len(values)}
    tags[339] = sample_format
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags.items())
    head = b"II*\0\x08\0\0\0" + struct.pack("<H", len(tags)) + entries
    return head.ljust(200, b"\0") + values


@pytest.mark.parametrize(
    ("content", "row"),
    [
        pytest.param(make_tiff(12, b"\x01\xe0\x10\xff\xf0\x00", 4), [1, 1, 255, 0], id="12 bits"),
        pytest.param(make_tiff(16, struct.pack("<3H", 255, 256, 65535), 3), [0, 1, 255], id="16 bits"),
        pytest.param(make_tiff(16, struct.pack("<3H", 0, 256, 65535), 3, 1, 0), [255, 254, 0], id="0 is white"),
        pytest.param(make_tiff(16, struct.pack("<3h", -32768, 0, 32767), 3, 2), [0, 128, 255], id="signed"),
    ],
)
def test_the_highest_bits_of_the_declared_depth_are_taken(content: bytes, row: list[int]) -> None:
    assert images.decode(content)[0, :, 0].tolist() == row


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


@pytest.mark.parametrize("error", [EOFError(), subprocess.CalledProcessError(1, "gs"), Warning("x")], ids=repr)
def test_whatever_a_decoder_raises_is_an_error_of_the_image(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: object) -> None:
        raise error

    content = encode(Image.new("RGB", (4, 4)))
    monkeypatch.setattr(PngImagePlugin.PngImageFile, "load", fail)
    with pytest.raises(DataError, match=r"cannot read a\.png") as caught:
        images.decode(content, "a.png")
    assert caught.value.exit_code == 9
    assert caught.value.remedy


def test_no_program_is_started_for_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("gs", "gswin64c"):
        (tmp_path / name).write_text(f"#!/bin/sh\ntouch {tmp_path}/called\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    for form in ("EPS", "PDF"):
        (tmp_path / "a.png").write_bytes(encode(Image.new("RGB", (8, 8)), form))
        with pytest.raises(DataError, match=r"a\.png"):
            images.decode(tmp_path / "a.png")
    assert not (tmp_path / "called").exists()


@pytest.mark.parametrize(
    ("content", "kind", "remedy"),
    [
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "SVG", "PNG"),
        (b"%PDF-1.7\n", "PDF", "PNG"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n", "PostScript", "PNG"),
        (b"\0\0\0\x18ftypheic\0\0\0\0mif1heic", "HEIC", "PNG"),
        (b"8BPS\0\1" + bytes(50), "Photoshop", "PNG"),
        (b"\x93NUMPY\x01\0", "NumPy", "PNG"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00", "a pointer of Git LFS", "git lfs pull"),
        (b"<!DOCTYPE html>\n<svg>", "an HTML page", "the file itself"),
        (b"<?xml" * 300, "text", "replace it"),
    ],
)
def test_files_of_other_formats_are_named_with_what_to_do(content: bytes, kind: str, remedy: str) -> None:
    with pytest.raises(DataError, match="cannot read") as caught:
        images.decode(content)
    assert kind in caught.value.why
    assert remedy in caught.value.remedy


def make_rle_bitmap(width: int, height: int, data: bytes) -> bytes:
    head = b"BM" + struct.pack("<III", 1078 + len(data), 0, 1078)
    return head + struct.pack("<IiiHHIIiiII", 40, width, height, 1, 8, 1, 0, 0, 0, 0, 0) + bytes(1024) + data


def test_small_files_that_take_long_to_decode_are_refused() -> None:
    assert images.decode(make_rle_bitmap(100, 100, b"\1\7\0\0" * 100)).shape[:2] == (100, 100)
    assert images.decode(make_rle_bitmap(255, 1000, b"\xff\7\0\0" * 1000)).shape[:2] == (1000, 255)
    for content in (
        make_rle_bitmap(25_000_000, 1, b"\1\7\0\0"),
        b"P2 5000 5000 255\n1 2 3",
        b"P5 9000 1000 200\n" + bytes(9_000_000),
    ):
        with pytest.raises(TooLargeError):
            images.decode(content)


def test_files_that_are_too_large_are_not_read(tmp_path: Path) -> None:
    with (tmp_path / "a.png").open("wb") as file:
        file.truncate(images.MOST_BYTES + 1)
    with pytest.raises(TooLargeError, match=r"a\.png"):
        images.decode(tmp_path / "a.png")


def test_what_is_no_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.png")
    for path, kind in ((tmp_path / "pipe.png", "named pipe"), (Path("/dev/zero"), "device"), (tmp_path, "folder")):
        with pytest.raises(DataError, match=str(path)) as caught:
            images.decode(path)
        assert kind in caught.value.why
    with pytest.raises(DataError, match="cannot read"):
        images.decode(tmp_path / "a\0.png")


def run_python(code: str, *arguments: str, path: Path = ROOT) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": f"{path}{os.pathsep}{ROOT}"}
    command = [sys.executable, "-W", "always", "-c", code, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_heic_is_read_where_its_package_is_installed(tmp_path: Path) -> None:
    (tmp_path / "pillow_heif.py").write_text("""
from PIL import Image, ImageFile

class HeifImageFile(ImageFile.ImageFile):
    format = "HEIF"

    def _open(self):
        self._size, self._mode = (2, 1), "RGB"
        self.tile = [ImageFile._Tile("raw", (0, 0, 2, 1), 24, ("RGB", 0, 1))]

def register_heif_opener():
    Image.register_open("HEIF", HeifImageFile, lambda prefix: prefix[4:12] == b"ftypheic")
""")
    (tmp_path / "a.heic").write_bytes(b"\0\0\0\x18ftypheic\0\0\0\0mif1heicabcdef")
    code = """
import pathlib, sys
from train.config import origin
from train.data import images
print(".heic" in origin.SUFFIXES, images.decode(pathlib.Path(sys.argv[1])).tolist())
"""
    done = run_python(code, str(tmp_path / "a.heic"), path=tmp_path)
    assert done.stdout == "True [[[97, 98, 99], [100, 101, 102]]]\n", done.stderr


@pytest.mark.parametrize(("count", "seed"), [(400, 1), pytest.param(20_000, 2, marks=pytest.mark.weekly)])
def test_damaged_files_of_all_formats_are_decoded_or_refused(count: int, seed: int) -> None:
    command = [sys.executable, "-m", "tests.unit.train.fuzzing", str(count), str(seed)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["uncaught"] == []
    assert sum(found["results"].values()) == count
    assert set(images.FORMATS) <= {*found["originals"]}


def test_images_are_fitted_to_a_shape() -> None:
    pixels = np.zeros((8, 16, 3), np.uint8)
    pixels[:, 3:13] = 200
    same = images.center_crop(pixels, (8, 16, 3))
    assert (same == pixels).all()
    assert (images.center_crop(pixels, (4, 4, 3)) == 200).all()
    assert images.center_crop(pixels, (8, 8, 1)).shape == (8, 8, 1)
    assert images.center_crop(pixels[..., :1], (8, 8, 3)).shape == (8, 8, 3)
