"""Shows pictures of a run: the test images with the highest loss one by one, and other sheets as they are."""

import base64
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from toolkit.report.page_model import Picture, Sheet, Text, Tile
from train.record import reader
from train.system.files import read_regular

ROOM: Final = 1_300_000
"""Bytes that all pictures of a page may have; base64 adds a third to those of the files."""

_SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"


@dataclass
class Budget:
    """The bytes that are left for pictures of a page."""

    left: int = ROOM

    def take(self, path: Path, alt: str, caption: str) -> Picture | Text:
        """Return a picture, or a sentence that says why it is not here."""
        try:
            data = read_regular(path)
        except OSError:
            return Text(text=f"{path.name} is not here.")
        size = measure(data)
        if size is None:
            return Text(text=f"{path.name} is no PNG file.")
        encoded = base64.b64encode(data).decode()
        if len(encoded) > self.left:
            return Text(text=f"{path.name} is left out: it has {len(data):,} bytes, and the page must stay small.")
        self.left -= len(encoded)
        return Picture(data=f"data:image/png;base64,{encoded}", alt=alt, caption=caption, width=size[0], height=size[1])


def measure(data: bytes) -> tuple[int, int] | None:
    """Return width and height of a PNG file; None if it is none."""
    if data[:8] != _SIGNATURE or data[12:16] != b"IHDR" or len(data) < 24:
        return None
    width, height = struct.unpack(">II", data[16:24])
    return width, height


def show_mistakes(folder: Path, recorded: object, names: Sequence[str], budget: Budget) -> Sheet | Picture | Text:
    """Return the test images with the highest loss. Runs of earlier versions recorded the sheet alone."""
    caption = "Test images with the highest loss"
    picture = budget.take(folder / reader.MISTAKES, f"{caption}, with true and predicted class", caption)
    if isinstance(picture, Text):
        return picture
    tiles = list(_read_tiles(recorded, names, picture))
    if not tiles:
        return picture
    return Sheet(
        id="mistakes", caption=f"The {len(tiles)} test images with the highest loss", picture=picture, tiles=tiles
    )


def _read_tiles(recorded: object, names: Sequence[str], picture: Picture) -> Iterator[Tile]:
    for number, entry in enumerate(recorded if isinstance(recorded, list) else ()):
        match entry:
            case {
                "example": int(example),
                "true": int(true),
                "predicted": int(predicted),
                "probability": int() | float() as share,
                "box": [int(left), int(top), int(width), int(height)],
            } if (
                0 <= true < len(names)
                and 0 <= predicted < len(names)
                and min(left, top) >= 0 < min(width, height)
                and left + width <= picture.width
                and top + height <= picture.height
            ):
                wrong = true != predicted
                # Without the outermost pixels, into which a browser that scales mixes what stands beside the image.
                edge = 1 if min(width, height) > 8 else 0
                yield Tile(
                    id=f"mistake-{number}",
                    box=(left + edge, top + edge, width - 2 * edge, height - 2 * edge),
                    title=names[true],
                    note=f"{'taken for ' + names[predicted] if wrong else 'recognized'}, {share:.0%}",
                    tone="fail" if wrong else "ok",
                    detail=f"test image {example}",
                    cell=f"{true}-{predicted}",
                )


def link_cells(recorded: object) -> Mapping[tuple[int, int], str]:
    """Return the first image on the page for each cell of the confusion matrix that has one off its diagonal."""
    regions: dict[tuple[int, int], str] = {}
    for number, entry in enumerate(recorded if isinstance(recorded, list) else ()):
        match entry:
            case {"true": int(true), "predicted": int(predicted), "box": [_, _, _, _]} if true != predicted:
                regions.setdefault((true, predicted), f"mistake-{number}")
    return regions


def show_folder(folder: Path, budget: Budget) -> list[Picture | Text]:
    """Return the pictures of a folder of ``toolkit predict --explain``."""
    paths = sorted(folder.glob("*.png"))
    return [budget.take(path, f"{path.stem}, red where it speaks for the predicted class", path.name) for path in paths]


def describe_pictures(value: Mapping[str, Any]) -> str:
    """Say how the samples were changed, from a run's configuration."""
    return "augmented, as the network got them" if value.get("augment") else "as the network got them"
