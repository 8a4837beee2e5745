"""Pictures that stand twice in a data set, and classes of uneven size, are named before training."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.unit.train.own.making import write_classes, write_image
from train.config.resolution import resolve
from train.data import own


def _smooth(seed: int) -> Image.Image:
    """Return a picture as photos are: one that looks the same after a change of its size."""
    points = np.random.default_rng(seed).integers(0, 256, (6, 6, 3)).astype(np.uint8)
    return Image.fromarray(points).resize((96, 96), Image.Resampling.BICUBIC)


def _copy(folder: Path, source: str, target: str) -> None:
    (folder / target).write_bytes((folder / source).read_bytes())


def _make(folder: Path) -> None:
    for use, count in (("train", 5), ("test", 3)):
        write_classes(folder / use, count=count)


def _copy_in_class(folder: Path) -> None:
    _copy(folder, "train/cat/0.png", "train/cat/copy.png")


def _copy_to_other_class(folder: Path) -> None:
    _copy(folder, "train/cat/0.png", "train/dog/copy.png")


def _copy_to_test(folder: Path) -> None:
    _copy(folder, "train/cat/0.png", "test/cat/copy.png")


def _shrink_to_test(folder: Path) -> None:
    _smooth(1).save(folder / "train/cat/photo.png")
    _smooth(1).resize((48, 48), Image.Resampling.BICUBIC).save(folder / "test/cat/photo.jpg", quality=80)
    _smooth(2).save(folder / "test/cat/other.png")


def _shrink_to_other_class(folder: Path) -> None:
    _smooth(1).save(folder / "train/cat/photo.png")
    _smooth(1).resize((48, 48), Image.Resampling.BICUBIC).save(folder / "train/dog/photo.jpg", quality=80)


def _scan_letters(folder: Path) -> None:
    for number in range(20):
        for use, place in enumerate(("train/cat", "train/dog", "test/cat")):
            noise = np.random.default_rng([number, use]).integers(-9, 9, (96, 96, 3))
            picture = (np.asarray(_smooth(number % 2), np.int16) // 2 + 64 + noise).astype(np.uint8)
            write_image(folder / place / f"scan-{number}.png", picture)


def _copy_three(folder: Path) -> None:
    for number in range(3):
        _copy(folder, f"train/cat/{number}.png", f"test/cat/copy{number}.png")


def _fill_one_class(folder: Path) -> None:
    for number in range(45):
        write_image(folder / f"train/dog/more-{number}.png")


def _paint_walls(folder: Path) -> None:
    for number, place in enumerate(("train/cat/wall.png", "test/dog/wall.png")):
        write_image(folder / place, np.full((12, 12, 3), 100 + number, np.uint8))


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (_make, ()),
        (_copy_in_class, ("1 of 11 training images", "is a copy of another", "cat/copy.png and", "train/cat/0.png")),
        (_copy_to_other_class, ("1 image of", "is in two classes", "no network can learn both", "dog/copy.png and")),
        (_copy_to_test, ("1 of 7 test images", "is also a training image", "test/cat/copy.png and", "train/cat/0.png")),
        (_copy_three, ("3 of 9 test images", "are also training images", "copy0.png and", "; ", "copy2.png and")),
        (_shrink_to_test, ("1 of 8 test images", "looks the same as a training image", "photo.jpg and", "photo.png")),
        (_shrink_to_other_class, ("1 training image of", "looks the same as one of another class", "photo.jpg and")),
        (_scan_letters, ()),
        (_fill_one_class, ("dog has 50 of 55", "cat has 5", "91%")),
        (_paint_walls, ()),
    ],
)
def test_what_stands_twice_is_named_with_counts_and_examples(
    tmp_path: Path, spoil: Callable[[Path], None], words: tuple[str, ...]
) -> None:
    folder = tmp_path / "photos"
    _make(folder)
    spoil(folder)
    found = own.load(resolve(dataset=str(folder), cache_dir=str(tmp_path / "cache"))).warnings
    assert len(found) == bool(words)
    assert all(word in found[0] for word in words)
    assert own.load(resolve(dataset=str(folder), cache_dir=str(tmp_path / "cache"))).warnings == found, "remembered"
