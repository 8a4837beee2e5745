"""Tables of encoded images and integer labels: what every format of Hugging Face holds."""

import io
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from train.data.dataset import Split
from train.errors import DataError

ROWS: Final = 1000
"""Rows that are decoded at a time: a table is never in memory whole."""

Open = Callable[[Path], tuple[int, Iterable[Any]]]
"""Gives the rows that a place holds, and the tables of at most `ROWS` rows that they come in."""


def read(places: list[Path], open_: Open, image: str, label: str) -> Split:
    """Read the tables of some places, one after the other, given the names of the columns.

    Raises:
        DataError: a table or an image cannot be read, a column is missing, or images have different shapes.
    """
    import pyarrow as pa

    labels: list[NDArray[np.int32]] = []
    images = np.empty((0, 0, 0, 0), np.uint8)
    place = places[0]
    try:
        opened = {}
        for place in places:
            opened[place] = open_(place)
        total, done = sum(rows for rows, _ in opened.values()), 0
        for place, (_, parts) in opened.items():
            for part in parts:
                labels.append(part[label].to_numpy(zero_copy_only=False).astype(np.int32))
                for value in part[image].to_pylist():
                    picture = _decode(value)
                    if not done:
                        images = np.empty((total, *picture.shape), np.uint8)
                    if picture.shape != images.shape[1:]:
                        raise DataError(f"the images of {place.parent} have different shapes")
                    images[done] = picture
                    done += 1
    except (pa.ArrowException, OSError, LookupError, TypeError, ValueError, SyntaxError, MemoryError) as error:
        raise DataError(f"cannot read {place}", why=str(error), remedy="get the data again") from error
    if done != total:
        raise DataError(f"{place.parent} holds {done} images, not the {total} it says")
    return Split(images, np.concatenate([*labels, np.empty(0, np.int32)]))


def _decode(value: dict[str, Any]) -> NDArray[np.uint8]:
    from PIL import Image

    with Image.open(io.BytesIO(value["bytes"])) as picture:
        array = np.asarray(picture, np.uint8)
    return array if array.ndim == 3 else array[..., None]
