"""Opens folders of images, tables and ``save_to_disk`` by the package `datasets`, which runs nothing that they ship."""

import glob
import json
import os
import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from train.config import origin
from train.data import layout, unpacking
from train.data.dataset import Split
from train.data.kinds import read_kind
from train.data.layout import SPLITS, Layout, Place, name_split
from train.data.pictures import IMAGE, Files, Pictures
from train.errors import DataError, ToolkitError
from train.system.files import read_text

LABELS: Final = ("label", "labels", "class", "target", "fine_label")
PART: Final = re.compile(r"(?P<name>.*?)[-_.]?\d*(-of-(?P<count>\d+))?")

Parts = Mapping[str, Sequence[str]]
"""Names of the splits that make up the training and the test split; without them, they are chosen by their names."""

Found = Mapping[str, list[Any]]
"""What makes up each split: tables, paths of files, or images with their labels."""


@contextmanager
def explain(place: object, doing: str = "read", remedy: str = "get the data again") -> Iterator[None]:
    """Turn whatever a reader raises for damaged files into a DataError."""
    try:
        yield
    except ToolkitError:
        raise
    except Exception as error:
        reason = str(error.__cause__ or error).partition("\n")[0] or type(error).__name__
        raise DataError(f"cannot {doing} {place}", why=reason, remedy=remedy) from error


@dataclass(frozen=True)
class Opened:
    """The splits of a folder, with images that are not decoded yet, the names of the classes, and what is left out."""

    splits: dict[str, Split]
    names: tuple[str, ...]
    left_out: str
    warnings: tuple[str, ...]


def open_folder(
    place: Place, cache: Path, source: str, parts: Parts, *, image: str = "", label: str = "", numbered: bool = False
) -> Opened:
    """Return what a folder or a table holds.

    `image` and `label` name columns; without them they are found by their types. With `numbered`, labels must be whole
    numbers, and stay as they are. Raises a DataError that says what is wrong.
    """
    kind, arranged = _find_splits(place, {name for names in parts.values() for name in names})
    contents = arranged.splits
    uses = choose_splits(contents, parts, source)
    named = {use: f"the {use} split of {source}" for use in uses}
    # The images of a table that is a file by itself lie beside it.
    alone = place.folder.is_file()
    folder, shown = (place.folder.parent, str(Path(place.shown).parent)) if alone else (place.folder, place.shown)
    if kind == "images":
        if image or label:
            raise DataError(f"{source} has no column {image or label}", why="it holds files of images, not tables")
        files = {use: [file for name in uses[use] for file in contents[name]] for use in uses}
        labels, names = _number({use: [label for _, label in files[use]] for use in uses}, str, source, numbered=False)
        paths = {use: Files(tuple(path for path, _ in files[use])) for use in uses}
        pictures = {use: Pictures(paths[use], named[use], folder, shown) for use in uses}
        splits = {use: Split(pictures[use], labels[use]) for use in uses}
        return Opened(splits, names, arranged.left_out, arranged.warnings)
    import datasets

    datasets.disable_progress_bars()
    datasets.logging.set_verbosity(datasets.logging.CRITICAL)  # an error of it becomes a DataError
    with explain(source):
        tables = {use: _join(kind, [part for name in uses[use] for part in contents[name]], cache) for use in uses}
    features = next(iter(tables.values())).features
    image = image or _choose("image", [name for name, kind in features.items() if _is_image(kind)], features, source)
    classes = [name for name, kind in features.items() if isinstance(kind, datasets.ClassLabel)]
    others = [name for name, kind in features.items() if name in LABELS and isinstance(kind, datasets.Value)]
    label = label or _choose("label", classes or others, features, source)
    pictures, columns, files_of_rows = {}, {}, set[str]()
    for use, table in tables.items():
        if missing := [name for name in (image, label) if name not in table.features]:
            shown = ", ".join(table.features)
            raise DataError(f"{source} has no column {missing[0]} in its split {use}", why=f"it has {shown}")
        with explain(source):
            columns[use] = table.select_columns([label])[:][label]
            raw = table.select_columns([image]).rename_columns({image: IMAGE})
            raw = raw.cast_column(IMAGE, datasets.Image(decode=False))
            files_of_rows |= _list_paths(raw)
        pictures[use] = Pictures(raw, named[use], folder, shown)
    labels, names = _number(columns, features[label], source, numbered=numbered)
    beside = "" if alone or kind == "saved" else _describe_beside(kind, folder, files_of_rows)
    return Opened({use: Split(pictures[use], labels[use]) for use in uses}, names, beside, arranged.warnings)


def _list_paths(table: Any) -> set[str]:
    """Return the paths of the images of a table that are files of their own."""
    chunks = table.data.column(IMAGE).chunks
    alone = (chunk.filter(chunk.field("bytes").is_null()) for chunk in chunks if chunk.field("bytes").null_count)
    return {os.path.normpath(path) for chunk in alone for path in chunk.field("path").to_pylist() if path}


def _describe_beside(kind: str, folder: Path, paths: set[str]) -> str:
    """Return a sentence on the images that lie beside tables and that no row names; empty if there are none."""
    count = sum(origin.is_image(name) and name not in paths for name in origin.list_files(folder))
    return f"{count} image{'s' * (count != 1)} beside the {kind.capitalize()} files, which are read" if count else ""


def _find_splits(place: Place, given: set[str]) -> tuple[str, Layout]:
    """Return the kind of a folder, and what makes up each of its splits."""
    folder = place.folder
    if folder.is_file():
        return read_kind(folder).name.split()[0].lower(), Layout({"train": [folder]})
    names = origin.list_files(folder)
    if "dataset_dict.json" in names or "state.json" in names:
        with explain(folder):
            return "saved", Layout(_list_saved(folder, names))
    for kind in ("parquet", "arrow"):
        if files := [name for name in names if name.endswith(f".{kind}")]:
            return kind, Layout(_group_files(files, folder))
    return "images", layout.arrange(place, names, given)


def _list_saved(folder: Path, names: Collection[str]) -> dict[str, list[Path]]:
    """Return the files of each split that ``save_to_disk`` wrote, of which none may be elsewhere."""
    kept = "dataset_dict.json" in names
    splits = json.loads(read_text(folder / "dataset_dict.json"))["splits"] if kept else [""]
    found = {}
    for split in splits:
        state = json.loads(read_text(folder / split / "state.json"))
        files = [str(PurePosixPath(split, file["filename"])) for file in state["_data_files"]]
        if strange := [file for file in files if file not in names]:
            raise ValueError(f"{strange[0]} is no file in it")
        found[split or "train"] = [folder / file for file in files]
    return found


def _join(kind: str, parts: list[Any], cache: Path) -> Any:
    import datasets

    for path in parts:
        unpacking.check(path, kind)
    if kind == "saved":
        return datasets.concatenate_datasets([datasets.Dataset.from_file(str(path)) for path in parts])
    files, options = [glob.escape(str(path)) for path in parts], {"batch_size": unpacking.ROWS}
    options = options if kind == "parquet" else {}
    return datasets.load_dataset(kind, data_files=files, split="train", cache_dir=str(cache / "arrow"), **options)


def _group_files(names: list[str], folder: Path) -> Found:
    """Group the files of tables by the split that their names tell, or that their folders tell if they are numbered."""
    found: dict[str, list[Any]] = defaultdict(list)
    homes = set()
    for path in (folder / name for name in names):
        told, home = PART.fullmatch(path.stem), path.parent
        assert told  # noqa: S101 - each part may be empty
        kind, count = told["name"], told["count"]
        if home.name.lower() in SPLITS and home != folder:
            kind, count, home = home.name, None, home.parent
        found[name_split(kind or "train")].append(path)
        homes.add(str(home.relative_to(folder)))
        present = len(list(path.parent.glob(f"{glob.escape(told['name'])}*-of-{count}.*"))) if count else 0
        if count and present != int(count):
            raise DataError(f"{path.parent} holds {present} of {int(count)} files of {kind}")
    if len(homes) > 1:
        shown = ", ".join(sorted(homes))
        raise DataError(f"{folder} holds more than one data set: {shown}", remedy="give one of these folders")
    return found


def choose_splits(found: Found, parts: Parts, source: str) -> dict[str, list[str]]:
    """Return the names of the splits for each use. Raises a DataError that lists the splits if one is missing."""
    shown = f"its splits are {', '.join(found)}"
    uses = {use: [name if name in found else name_split(name) for name in names] for use, names in parts.items()}
    if missing := [name for names in uses.values() for name in names if name not in found]:
        raise DataError(f"{source} holds no split {missing[0]}", why=shown, remedy="name them by --split TRAIN:TEST")
    if uses or len(found) == 1:
        return uses or {"train": list(found)}
    if "train" not in found:
        raise DataError(f"{source} has no split to train on", why=shown, remedy="name them by --split TRAIN:TEST")
    uses = {use: [use] for use in ("train", "validation", "test") if use in found}
    return uses if "test" in uses or "validation" not in uses else {"train": ["train"], "test": ["validation"]}


def _is_image(kind: Any) -> bool:
    import datasets

    raw = isinstance(kind, Mapping) and {"bytes", "path"} == set(kind)
    return raw or isinstance(kind, datasets.Image) or (isinstance(kind, datasets.Value) and kind.dtype == "binary")


def _choose(what: str, found: list[str], features: Mapping[str, Any], source: str) -> str:
    if len(found) == 1:
        return found[0]
    raise DataError(
        f"{source} has {len(found) or 'no'} columns that can be the {what}" + f": {', '.join(found)}" * bool(found),
        why=f"its columns are {', '.join(features)}",
        remedy=f"name the column by --{what}-column",
    )


def _number(
    columns: Mapping[str, list[Any]], kind: Any, source: str, *, numbered: bool
) -> tuple[dict[str, NDArray[np.int32]], tuple[str, ...]]:
    """Return the labels of each split as numbers from 0, and the names of the classes."""
    names = getattr(kind, "names", [])
    for split, column in columns.items():
        missing = [row for row, value in enumerate(column) if value is None or (names and value == -1)]
        if missing:
            raise DataError(
                f"row {missing[0]} of the split {split} of {source} has no label",
                why=f"{len(missing)} of {len(column)} rows have none; rows are counted from 0",
                remedy="leave these rows out, or name other splits by --split",
            )
    with explain(source):
        values = sorted({value for column in columns.values() for value in column})
        if numbered or names:
            if not all(type(value) is int for value in values):
                raise DataError(f"cannot read {source}", why=f"its labels are of type {kind}, not whole numbers")
            # A label out of range stays out of range.
            limits = -1, np.iinfo(np.int32).max
            return {split: np.clip(column, *limits).astype(np.int32) for split, column in columns.items()}, tuple(names)
    if not all(isinstance(value, str | int) for value in values):
        raise DataError(
            f"the label column of {source} holds no classes",
            why=f"its values are of type {type(values[0]).__name__}",
            remedy="name a column of whole numbers or texts by --label-column",
        )
    places = {value: number for number, value in enumerate(values)}
    labels = {split: np.array([places[value] for value in column], np.int32) for split, column in columns.items()}
    return labels, tuple(map(str, values))
