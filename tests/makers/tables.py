from pathlib import Path
from typing import Any

import datasets
from PIL import Image

from tests.unit.train.own.making import make_image
from train.command_line import parse
from train.data import Dataset, load

COUNT = 10


def make_table(count: int = COUNT, label: Any = None, *, name: str = "kind") -> Any:
    values = [number % 2 for number in range(count)] if label is None else label
    features = datasets.Features({"picture": datasets.Image()})
    pictures = [Image.fromarray(make_image()) for _ in range(count)]
    table = datasets.Dataset.from_dict({"picture": pictures}, features=features)
    kind = datasets.ClassLabel(names=["cat", "dog"]) if label is None else None
    return table.add_column(name, values, feature=kind)


def open_(folder: Path, *options: str) -> Dataset:
    return load(parse([str(folder), "--cache-dir", str(folder.parent / "cache"), *options]))


def write(folder: Path, kind: str, **splits: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for split, table in splits.items():
        if kind == "parquet":
            table.to_parquet(folder / f"{split}-00000-of-00001.parquet")
        elif kind == "arrow":
            table.save_to_disk(folder / "kept")
            (folder / "kept" / "data-00000-of-00001.arrow").rename(folder / f"{split}.arrow")
            for path in (folder / "kept").iterdir():
                path.unlink()
            (folder / "kept").rmdir()
    if kind == "saved":
        datasets.DatasetDict(splits).save_to_disk(folder)
    return folder
