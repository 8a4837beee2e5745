"""Image data sets as the Hugging Face Hub keeps them: Parquet files with encoded images and integer labels."""

import io
from pathlib import Path
from typing import Any

import numpy as np

from train.data.dataset import Split
from train.errors import DataError


def find(folder: Path, split: str) -> list[Path]:
    """The files of a split in or below a folder, in order; the Hub names them ``train-00000-of-00001.parquet``."""
    patterns = (f"{split}-*.parquet", f"{split}.parquet", f"{split}/*.parquet")
    for parent in ("", "data/", "*/"):
        for pattern in patterns:
            files = sorted(folder.glob(parent + pattern))
            if files:
                return files
    return []


def read(files: list[Path], image: str, label: str) -> Split:
    """Read one split from its files, given the names of the columns.

    Raises:
        DataError: a file or an image cannot be read, or a column is missing.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    images, labels = [], []
    for path in files:
        try:
            table = pq.read_table(path, columns=[image, label])
            labels.append(table[label].to_numpy().astype(np.int32))
            images += [_decode(value) for value in table[image].to_pylist()]
        except (pa.ArrowException, OSError, KeyError, TypeError, ValueError) as error:
            raise DataError(f"cannot read {path}", why=str(error), remedy="get the file again") from error
    if len({array.shape for array in images}) != 1:
        raise DataError(f"the images of {files[0].parent} have different shapes")
    return Split(np.stack(images), np.concatenate(labels))


def _decode(value: dict[str, Any]) -> np.ndarray[Any, np.dtype[np.uint8]]:
    from PIL import Image

    with Image.open(io.BytesIO(value["bytes"])) as picture:
        array = np.asarray(picture, np.uint8)
    return array if array.ndim == 3 else array[..., None]
