"""Reads images and integer labels of Hugging Face: Parquet, or saved Arrow files. Rows are counted from 0, as there."""

import io
import re
import struct
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from train.data.dataset import Split
from train.errors import DataError

ROWS: Final = 1000
"""Number of rows decoded at a time, so that a table is never completely in memory."""

Open = Callable[[Path], tuple[int, Iterable[Any]]]
"""A function that returns the number of rows at a path, and tables of at most `ROWS` of these rows."""

MODES: Final = ("L", "RGB")
"""Pillow's names for images of one byte or three bytes a pixel."""


def find_parquet(folder: Path, split: str) -> list[Path]:
    patterns = (f"{split}-*.parquet", f"{split}.parquet", f"{split}/*.parquet")
    for parent in ("", "data/", "*/"):
        for pattern in patterns:
            files = sorted(folder.glob(parent + pattern))
            if files:
                told = re.search(r"-of-(\d+)\.", files[0].name)
                if told and int(told[1]) != len(files):
                    raise DataError(f"{files[0].parent} holds {len(files)} of {int(told[1])} files of {split}")
                return files
    return []


def read_parquet(files: list[Path], image: str, label: str) -> Split:
    import pyarrow.parquet as pq

    def open_(path: Path) -> tuple[int, Iterable[Any]]:
        file = pq.ParquetFile(path)
        return file.metadata.num_rows, file.iter_batches(batch_size=ROWS, columns=[image, label])

    return _read(files, open_, image, label)


def find_saved(folder: Path, split: str) -> Path | None:
    path = folder / split
    return path if (folder / "dataset_dict.json").is_file() and (path / "state.json").is_file() else None


def read_saved(paths: list[Path], image: str, label: str) -> Split:
    def open_(path: Path) -> tuple[int, Iterable[Any]]:
        # Imported here, because it takes a second and only this layout needs it.
        from datasets import load_from_disk

        saved = load_from_disk(str(path)).select_columns([image, label]).with_format("arrow")
        return len(saved), saved.iter(batch_size=ROWS)

    return _read(paths, open_, image, label)


def _read(paths: list[Path], open_: Open, image: str, label: str) -> Split:
    import pyarrow as pa

    labels: list[NDArray[np.int32]] = []
    images = np.empty((0, 0, 0, 0), np.uint8)
    path = paths[0]
    try:
        opened = {}
        for path in paths:
            opened[path] = open_(path)
        total, done = sum(rows for rows, _ in opened.values()), 0
        for path, (_, parts) in opened.items():
            row = 0
            for part in parts:
                labels.append(_read_labels(part[label], path, row))
                for value in part[image].to_pylist():
                    picture = _decode(value, path, row)
                    if not done:
                        images = np.empty((total, *picture.shape), np.uint8)
                    if picture.shape != images.shape[1:]:
                        raise _refuse(
                            path, row, f"the image has shape {picture.shape}, those before it {images.shape[1:]}"
                        )
                    images[done] = picture
                    done += 1
                    row += 1
    except (pa.ArrowException, OSError, LookupError, TypeError, ValueError, SyntaxError, MemoryError) as error:
        raise DataError(f"cannot read {path}", why=str(error), remedy="get the data again") from error
    if done != total:
        raise DataError(f"{path.parent} holds {done} images, not the {total} it says")
    return Split(images, np.concatenate([*labels, np.empty(0, np.int32)]))


def _read_labels(column: Any, path: Path, start: int) -> NDArray[np.int32]:
    import pyarrow as pa

    if not pa.types.is_integer(column.type):
        raise DataError(f"cannot read {path}", why=f"its labels are of type {column.type}, not whole numbers")
    if column.null_count:
        raise _refuse(path, start + column.is_null().to_pylist().index(True), "the label is missing")
    labels: NDArray[np.int64] = column.to_numpy(zero_copy_only=False).astype(np.int64)
    return np.clip(labels, -1, np.iinfo(np.int32).max).astype(np.int32)  # a label out of range stays out of range


def _decode(value: Any, path: Path, row: int) -> NDArray[np.uint8]:
    from PIL import Image, UnidentifiedImageError

    if value is None:
        raise _refuse(path, row, "the image is missing")
    if not isinstance(value, dict):
        raise _refuse(path, row, f"the column holds {type(value).__name__}, not images with their bytes")
    content = value.get("bytes")
    if not content:
        raise _refuse(path, row, "the image has no bytes")
    try:
        with Image.open(io.BytesIO(content)) as picture:
            if picture.mode not in MODES:
                raise _refuse(path, row, f"the image has mode {picture.mode}, not {' or '.join(MODES)}")
            array = np.asarray(picture, np.uint8)
    except UnidentifiedImageError:
        raise _refuse(path, row, f"these {len(content)} bytes are no image that can be read") from None
    except (*_BROKEN, Image.DecompressionBombError) as error:
        raise _refuse(path, row, f"the image is broken: {error or type(error).__name__}") from error
    return array if array.ndim == 3 else array[..., None]


def _refuse(path: Path, row: int, what: str) -> DataError:
    return DataError(
        f"cannot use row {row} of {path}",
        why=what,
        remedy="get the data again, or leave this row out; rows are counted from 0",
    )


_BROKEN: Final = (OSError, LookupError, TypeError, ValueError, SyntaxError, MemoryError, ArithmeticError, struct.error)
"""Exceptions that Pillow's readers can raise for damaged bytes."""
