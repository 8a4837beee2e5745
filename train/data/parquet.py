"""Image data sets as the Hugging Face Hub keeps them: Parquet files."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from train.data import tables
from train.data.dataset import Split
from train.errors import DataError


def find(folder: Path, split: str) -> list[Path]:
    """The files of a split in or below a folder, in order; the Hub names them ``train-00000-of-00001.parquet``.

    Raises:
        DataError: there are more or fewer of them than their names say.
    """
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


def read(files: list[Path], image: str, label: str) -> Split:
    """Read files, one after the other, given the names of the columns.

    Raises:
        DataError: a file or an image cannot be read, or a column is missing.
    """
    import pyarrow.parquet as pq

    def open_(path: Path) -> tuple[int, Iterable[Any]]:
        file = pq.ParquetFile(path)
        return file.metadata.num_rows, file.iter_batches(batch_size=tables.ROWS, columns=[image, label])

    return tables.read(files, open_, image, label)
