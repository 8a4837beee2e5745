"""Folders that ``datasets`` writes by ``save_to_disk``: memory-mapped Arrow files, one folder a split."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from train.data import tables
from train.data.dataset import Split


def find(folder: Path, split: str) -> Path | None:
    """The folder of a split, if `folder` is a saved ``DatasetDict``."""
    place = folder / split
    return place if (folder / "dataset_dict.json").is_file() and (place / "state.json").is_file() else None


def read(places: list[Path], image: str, label: str) -> Split:
    """Read splits from their folders, one after the other, given the names of the columns.

    Raises:
        DataError: a file or an image cannot be read, or a column is missing.
    """

    def open_(path: Path) -> tuple[int, Iterable[Any]]:
        # Slow to load (a second), and needed for this layout alone.
        from datasets import load_from_disk

        saved = load_from_disk(str(path)).select_columns([image, label]).with_format("arrow")
        return len(saved), saved.iter(batch_size=tables.ROWS)

    return tables.read(places, open_, image, label)
