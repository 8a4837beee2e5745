"""Draws sheets of images with their labels: what a run trains on, and the test images with the highest loss."""

import hashlib
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from train.record.metrics import add_picture
from train.record.reader import MISTAKES, SAMPLES
from train.system.files import replacing
from train.system.output import inline

if TYPE_CHECKING:
    from train.data import Split
    from train.input.batches import Batches
    from train.step.evaluation import Evaluation

COLUMNS: Final = 8
COUNT: Final = 5 * COLUMNS
"""Images of a sheet, at most."""

SIDE, GAP, LINE, HEAD, DPI = 112, 16, 17, 44, 110
"""In pixels: longer side of an image, space around it, height of a line of text, height of the title; dots per inch."""

DARK: Final = 64
"""A sheet is shown brighter if its brightest pixel is darker than this."""

LETTERS: Final = 16
"""Width of a label in letters. A letter of Chinese, Japanese or Korean counts as two."""

LAST_RESORT: Final = "Last Resort"
"""Beginning of the name of a font that has a box for each character."""


@dataclass(frozen=True)
class Tile:
    """An image as bytes, (height, width, channels), and the lines below it with the colour of each."""

    image: NDArray[np.uint8]
    lines: tuple[tuple[str, str], ...]


def draw_samples(folder: Path, batches: "Batches", step: int = 0) -> None:
    """Draw images of a step as the network gets them, each with its label, or with both labels of a mixture."""
    images, labels = (part[:COUNT] for part in batches.make(step))
    lines = [_describe_target(label, batches.dataset.class_names) for label in labels]
    tiles = [Tile(image, text) for image, text in zip(images, lines, strict=True)]
    changed = "augmented" if batches.config.augment else "not augmented"
    _write(folder, SAMPLES, tiles, f"the first {len(tiles)} images of training, {changed}", step)


def _describe_target(label: Any, names: Sequence[str]) -> tuple[tuple[str, str], ...]:
    if not np.ndim(label):
        return ((shorten(names, int(label)), "black"),)
    order = np.argsort(-label, kind="stable")[:2].tolist()
    return tuple((shorten(names, index, f" {label[index]:.0%}"), "black") for index in order if label[index])


def draw_mistakes(
    folder: Path, split: "Split", evaluation: "Evaluation", names: Sequence[str], step: int
) -> list[dict[str, Any]]:
    """Draw the images of a split with the highest loss, each with its class, and the predicted one's probability.

    Returns the same for each image, with its number in the split and its place in the picture.
    """
    tiles, described = [], []
    images = split.images[np.array([mistake.example for mistake in evaluation.worst], np.int64)]
    for image, mistake in zip(images, evaluation.worst, strict=True):
        true = int(split.labels[mistake.example])
        text = "→ " + shorten(names, mistake.predicted, f" {mistake.probability:.0%}")
        color = "tab:green" if mistake.predicted == true else "tab:red"
        tiles.append(Tile(image, ((shorten(names, true), "black"), (text, color))))
        described.append({**mistake._asdict(), "true": true})
    wrong = round((1 - evaluation.accuracy) * len(split))
    title = f"test images with the highest loss; {wrong} of {len(split)} are taken for another class"
    _write(folder, MISTAKES, tiles, title, step)
    places = _place(tiles)
    return [mistake | {"box": [*place, SIDE, SIDE]} for mistake, place in zip(described, places, strict=True)]


def _place(tiles: Sequence[Tile]) -> list[tuple[int, int]]:
    """Return where the image of each tile begins: pixels from the left and from the top."""
    lines = max((len(tile.lines) for tile in tiles), default=0)
    across, down = SIDE + GAP, SIDE + lines * LINE + GAP
    return [(GAP + number % COLUMNS * across, HEAD + number // COLUMNS * down) for number in range(len(tiles))]


def escape(text: str) -> str:
    """Return a text in one line. A character that is not printable is escaped: a tab is ``\\t``."""
    return " ".join(inline(text).split())


def show(text: str) -> str:
    """Return a text as a picture can show it, with a box for each letter that no font of this machine has."""
    return "".join(c if c.isspace() or find_fonts(c) else "□" for c in escape(text))


def name_class(names: Sequence[str], label: int) -> str:
    """Return the name of a class as a picture can show it; its number if no font of this machine has the name."""
    name = escape(names[label])
    return name if name and find_fonts(name) else f"class {label}"


def shorten(names: Sequence[str], label: int, end: str = "", *, width: int = LETTERS) -> str:
    """Return the name of a class as a picture can show it, cut to a width: by default that of an image."""
    name = name_class(names, label)
    if _measure(name + end) <= width:
        return name + end
    while _measure(name + "…" + end) > width:
        name = name[:-1]
    return name + "…" + end


def _measure(text: str) -> int:
    wide = sum(unicodedata.east_asian_width(letter) in "WF" for letter in text)
    return wide + sum(not unicodedata.combining(letter) for letter in text)


@cache
def find_fonts(text: str) -> tuple[str, ...]:
    """Return fonts that together have all letters of a text, the usual one first; none if no font has a letter."""
    from matplotlib import font_manager

    usual: list[Any] = []
    others: list[Any] = []
    for font in font_manager.fontManager.ttflist:
        if not font.name.startswith(LAST_RESORT):
            (usual if font.name == "DejaVu Sans" else others).append(font)
    chosen, missing = [], {letter for letter in text if not letter.isspace()}
    for font in (*usual[:1], *others):
        if missing and (had := _find_letters(font.fname, missing)):
            chosen.append(font.name)
            missing -= had
    return () if missing else tuple(chosen)


def choose_fonts(text: str) -> tuple[str, ...]:
    """Return the names of fonts for a text; the usual one if none has all of its letters."""
    return find_fonts(text) or ("DejaVu Sans",)


def _find_letters(file: str, letters: set[str]) -> set[str]:
    from matplotlib import font_manager

    try:
        font = font_manager.get_font(file)
        return {letter for letter in letters if font.get_char_index(ord(letter))}
    except (OSError, RuntimeError):  # a damaged font of this machine
        return set()


def _write(folder: Path, name: str, tiles: Sequence[Tile], title: str, step: int) -> None:
    from PIL import Image

    picture = render(tiles, title)
    with replacing(folder / name) as file:
        Image.fromarray(picture).save(file, "PNG")
    add_picture(folder, name.removesuffix(".png"), picture, step)


def render(tiles: Sequence[Tile], title: str) -> NDArray[np.uint8]:
    """Return a sheet as bytes: (height, width, 3)."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    lines = max((len(tile.lines) for tile in tiles), default=0)
    across, down = SIDE + GAP, SIDE + lines * LINE + GAP
    width, height = COLUMNS * across + GAP, HEAD + -(-len(tiles) // COLUMNS) * down
    figure = Figure(figsize=(width / DPI, height / DPI), dpi=DPI)
    canvas = FigureCanvasAgg(figure)

    def say(x: float, y: float, text: str, **options: Any) -> None:
        family = choose_fonts(text)
        figure.text(x / width, 1 - y / height, text, va="top", parse_math=False, family=family, **options)

    places = _place(tiles)
    say(GAP, 14, title, fontsize=10)
    for tile, (left, top) in zip(tiles, places, strict=True):
        for line, (text, color) in enumerate(tile.lines):
            say(left + SIDE / 2, top + SIDE + 4 + line * LINE, text, fontsize=8, color=color, ha="center")
    canvas.draw()
    sheet = np.array(canvas.buffer_rgba())[..., :3].copy()
    # Data that uses few of a byte's values, as digits does, would be black.
    brightest = max((int(tile.image.max()) for tile in tiles), default=0)
    factor = 255 // brightest if 0 < brightest < DARK else 1
    for tile, (left, top) in zip(tiles, places, strict=True):
        image = _scale(tile.image * np.uint8(factor))
        y, x = top + (SIDE - image.shape[0]) // 2, left + (SIDE - image.shape[1]) // 2
        sheet[y : y + image.shape[0], x : x + image.shape[1]] = image
    return sheet


def _scale(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Scale the longer side of an image to `SIDE`; small images keep square pixels."""
    from PIL import Image

    longer = max(image.shape[:2])
    size = tuple(max(1, round(length * SIDE / longer)) for length in (image.shape[1], image.shape[0]))
    picture = Image.fromarray(image[..., 0] if image.shape[-1] == 1 else image).convert("RGB")
    return np.asarray(picture.resize(size, Image.Resampling.NEAREST if longer < SIDE else Image.Resampling.LANCZOS))


def digest_files(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """Return the SHA-256 of each of these files that exists."""
    paths = [folder / name for name in names if (folder / name).exists()]
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}
