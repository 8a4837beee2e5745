"""Tables of encoded images and integer labels: what every format of Hugging Face holds."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from train.data.dataset import Split
from train.errors import DataError


def read(places: list[Path], load: Callable[[Path], Any], image: str, label: str) -> Split:
    """Read one split from its tables, given what makes a table of a place, and the names of the columns.

    Raises:
        DataError: a table or an image cannot be read, or a column is missing.
    """
    import pyarrow as pa

    images, labels = [], []
    for place in places:
        try:
            table = load(place)
            labels.append(table[label].to_numpy().astype(np.int32))
            images += [_decode(value) for value in table[image].to_pylist()]
        except (pa.ArrowException, OSError, KeyError, TypeError, ValueError) as error:
            raise DataError(f"cannot read {place}", why=str(error), remedy="get the data again") from error
    if len({array.shape for array in images}) != 1:
        raise DataError(f"the images of {places[0].parent} have different shapes")
    return Split(np.stack(images), np.concatenate(labels))


def _decode(value: dict[str, Any]) -> np.ndarray[Any, np.dtype[np.uint8]]:
    from PIL import Image

    with Image.open(io.BytesIO(value["bytes"])) as picture:
        array = np.asarray(picture, np.uint8)
    return array if array.ndim == 3 else array[..., None]
