"""Makes a folder that only its owner may read: images of two classes, and a place for what is made of them."""

from pathlib import Path

import numpy as np
from PIL import Image


def make_place(top: Path) -> Path:
    """Make private images in ``data`` and a private, empty folder ``out``, and return the folder with both."""
    numbers = np.random.default_rng(0)
    for level, name in enumerate(("dark", "light")):
        (top / "data" / name).mkdir(parents=True)
        for index in range(10):
            pixels = numbers.integers(0, 80, (12, 12)) + 150 * level
            Image.fromarray(pixels.astype("uint8")).save(top / "data" / name / f"{index}.png")
    (top / "out").mkdir()
    for path in top.rglob("*"):
        path.chmod(0o700 if path.is_dir() else 0o600)
    return top
