"""Decodes damaged images: ``python -m tests.unit.train.fuzzing COUNT SEED`` prints what came of them.

Each file is a small image of one of the formats that Pillow writes, in which some bytes were changed, cut, doubled or
swapped. It runs as a process of its own, so that a crash of a decoder shows.
"""

import faulthandler
import io
import json
import random
import sys
import traceback
from collections import Counter
from collections.abc import Iterator

import numpy as np
from PIL import Image

from train.data import images
from train.errors import DataError

PIXELS = 1_000_000
"""Limit of pixels, so that damaged sizes take little time."""


def make_originals() -> list[tuple[str, bytes]]:
    """Return small images of all formats, modes and compressions that Pillow writes, with the format of each."""
    color = np.random.default_rng(0).integers(0, 256, (24, 20, 3)).astype(np.uint8)
    color[6:18, 4:14] = (200, 30, 60)
    plain, high = Image.fromarray(color), Image.fromarray(color[..., 0].astype(np.uint16) << 7)
    clear = plain.convert("RGBA")
    clear.putalpha(Image.fromarray(color[..., 1]))
    exif = Image.Exif()
    exif[0x0112] = 6
    images.list_formats()  # silences libtiff
    modes = [plain, plain.convert("L"), plain.convert("P"), plain.convert("1"), clear, plain.convert("LA"), high]
    modes += [plain.convert(mode) for mode in ("CMYK", "YCbCr", "LAB", "I", "F")]
    tiff = [{"compression": name} for name in ("tiff_lzw", "tiff_adobe_deflate", "packbits", "jpeg", "group4", "zstd")]
    options: dict[str, list[dict[str, object]]] = {
        "TIFF": [{}, *tiff, {"exif": exif}, {"save_all": True, "append_images": [plain]}],
        "PNG": [{}, {"exif": exif}, {"save_all": True, "append_images": [plain]}, {"transparency": 0}],
        "GIF": [{}, {"save_all": True, "append_images": [plain]}],
        "JPEG": [{}, {"exif": exif}, {"progressive": True}],
        "WEBP": [{}, {"lossless": True}, {"save_all": True, "append_images": [plain]}],
        "AVIF": [{}, {"exif": exif}, {"save_all": True, "append_images": [plain]}],
        "TGA": [{}, {"compression": "tga_rle"}],
        "JPEG2000": [{}, {"irreversible": True}],
    }
    originals = {}
    for form in sorted(set(Image.SAVE) - {"PDF", "XPM"}):
        for image in modes:
            for option in options.get(form, [{}]):
                file = io.BytesIO()
                try:
                    image.save(file, form, **option)
                except Exception:  # noqa: BLE001, S112 - the format has no such mode
                    continue
                originals[file.getvalue()] = form
    return [(form, content) for content, form in originals.items()] + [(form, made) for form, made in _write_others()]


def _write_others() -> Iterator[tuple[str, bytes]]:
    """Yield files of readers that Pillow has no writer for, and of those that it has in Python alone."""
    head = b"BM" + bytes(8) + (1078).to_bytes(4, "little") + (40).to_bytes(4, "little")
    head += (20).to_bytes(4, "little") * 2 + b"\x01\0\x08\0\x01\0\0\0" + bytes(20)
    yield "BMP", head + bytes(1024) + b"\x14\x07\0\0" * 10 + b"\0\x02\x03\x02\0\x05abcde\0\0\x01"
    yield "PPM", b"P3\n4 4\n200\n" + b"1 2 3 " * 16
    yield "PPM", b"P2 # gray\n4 4\n4095\n" + b"4000 " * 16
    yield "PPM", b"P1\n4 4\n" + b"01" * 8
    yield "PPM", b"P6 4 4 100\n" + bytes(48)
    yield "DDS", b"DDS " + (124).to_bytes(4, "little") + bytes(120) + bytes(64)
    yield "BLP", b"BLP2" + bytes(160)
    yield "EPS", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nshowpage\n%%EOF\n"


def mutate(content: bytes, numbers: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(numbers.choice((1, 1, 2, 8, 30))):
        near = min(len(changed), numbers.choice((64, 512, len(changed))))  # headers are near the beginning
        place, length = numbers.randrange(max(1, near)), numbers.choice((0, 1, 4, 32))
        other = numbers.randrange(max(1, len(changed)))
        words = (bytes([numbers.randrange(256)]), b"\xff" * 4, bytes(4), b"", bytes(changed[other : other + 32]))
        changed[place : place + length] = numbers.choice(words)
    return bytes(changed) or b"\0"


def run(count: int, seed: int) -> dict[str, object]:
    """Decode so many damaged images; return the numbers of results, and the first of what was not a DataError."""
    originals, numbers = make_originals(), random.Random(seed)  # noqa: S311 - no secret
    results: Counter[str] = Counter()
    uncaught: list[str] = []
    for index in range(count):
        form, content = originals[index % len(originals)]
        faulthandler.dump_traceback_later(60, exit=True)
        try:
            images.load(mutate(content, numbers), "the image", PIXELS)
            results["decoded"] += 1
        except DataError as error:
            results[type(error).__name__] += 1
        except Exception:  # noqa: BLE001 - that is what is looked for
            results["uncaught"] += 1
            uncaught.append(f"{form}, file {index}: {traceback.format_exc(limit=-1)}")
    faulthandler.cancel_dump_traceback_later()
    return {"originals": sorted({form for form, _ in originals}), "results": dict(results), "uncaught": uncaught[:5]}


if __name__ == "__main__":
    faulthandler.enable()
    print(json.dumps(run(int(sys.argv[1]), int(sys.argv[2]))))
