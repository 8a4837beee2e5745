"""Opens images and labels through the package `datasets`, which runs nothing that a data set ships.

A table is a ``datasets.Dataset`` with two columns: `IMAGE`, not decoded, and `LABEL`, whole numbers from 0.
"""

import glob
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from train import origin
from train.errors import DataError

IMAGE, LABEL = "image", "label"
SPLITS: Final = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("validation", "valid", "val", "dev"), "validation"),
    **dict.fromkeys(("test", "testing", "eval"), "test"),
}
PART: Final = re.compile(r"(?P<name>.*?)[-_.]?\d*(-of-(?P<count>\d+))?")
LABELS: Final = ("label", "labels", "class", "target", "fine_label")


class Tables(NamedTuple):
    """The table of each split, and the names of the classes."""

    splits: Mapping[str, Any]
    names: tuple[str, ...]


def open_folder(folder: Path, cache: Path, *, image: str = "", label: str = "", given: Sequence[str] = ()) -> Tables:
    """Open a folder of images by class, of Parquet or Arrow files, or of ``save_to_disk``.

    `image` and `label` name columns; without them they are found by their types. `given` are names of splits that
    folders of images have, besides the usual ones. Raises a DataError that says what is wrong.
    """
    names = origin.list_files(folder)
    if "dataset_dict.json" in names or "state.json" in names:
        return choose_columns(open_saved(folder), folder, image, label)
    for kind in ("parquet", "arrow"):
        if files := [name for name in names if name.endswith(f".{kind}")]:
            groups = group_files(files, folder)
            wanted = set(given) | set(SPLITS.values()) if given or "train" in groups else groups.keys()
            groups = {split: paths for split, paths in groups.items() if split in wanted}
            return choose_columns(open_files(kind, groups, folder, cache), folder, image, label)
    return _open_images(folder, [name for name in names if Path(name).suffix.lower() in origin.SUFFIXES], given)


def _open_images(folder: Path, names: list[str], given: Sequence[str]) -> Tables:
    import datasets

    if not names:
        raise DataError(
            f"there are no images in {folder}",
            why="it holds neither files of images nor Parquet or Arrow files",
            remedy="give a folder with one folder of images for each class",
        )
    tops = {name.partition("/")[0] for name in names}
    known = {**SPLITS, **{name: name for name in given}}
    split = all(top.lower() in known for top in tops) and any("/" in name.partition("/")[2] for name in names)
    found: dict[str, dict[str, list[Any]]] = defaultdict(lambda: {IMAGE: [], LABEL: []})
    for name in names:
        top, _, rest = name.partition("/") if split else ("train", "", name)
        kind, (label, slash, _) = known[top.lower()] if split else top, rest.partition("/")
        if not slash:
            raise DataError(
                f"{folder / name} has no label",
                why="an image's label is the name of the folder that it lies in",
                remedy="put the images of each class into a folder of its own",
            )
        _require_text(folder, name)
        found[kind][IMAGE].append(str(folder / name))
        found[kind][LABEL].append(label)
    classes = sorted({label for columns in found.values() for label in columns[LABEL]})
    features = datasets.Features({IMAGE: datasets.Image(decode=False), LABEL: datasets.ClassLabel(names=classes)})
    numbers = {label: number for number, label in enumerate(classes)}
    tables = {}
    for kind, columns in found.items():
        labels = [numbers[label] for label in columns[LABEL]]
        tables[kind] = datasets.Dataset.from_dict({IMAGE: columns[IMAGE], LABEL: labels}, features=features)
    return Tables(tables, tuple(classes))


def _require_text(folder: Path, name: str) -> None:
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise DataError(
            f"{folder / name} has a name that is no text", why="its bytes are not UTF-8", remedy="rename it"
        ) from error


def group_files(names: Iterable[str], folder: Path) -> dict[str, list[Path]]:
    """Group the files of tables by the split that their names tell, or that their folders tell if they are numbered."""
    found: dict[str, list[Path]] = defaultdict(list)
    homes: dict[Path, None] = {}
    for name in names:
        path = folder / name
        told = PART.fullmatch(path.stem)
        kind, count, home = (told["name"], told["count"], path.parent) if told else (path.stem, None, path.parent)
        if home.name.lower() in SPLITS and home != folder:
            kind, count, home = home.name, None, home.parent
        kind = SPLITS.get(kind.lower(), kind or "train")
        found[kind].append(path)
        homes[home] = None
        present = len(list(path.parent.glob(f"{glob.escape(told['name'])}*-of-{count}.*"))) if told and count else 0
        if count and present != int(count):
            raise DataError(f"{path.parent} holds {present} of {int(count)} files of {kind}")
    if len(homes) > 1:
        shown = ", ".join(sorted(str(home.relative_to(folder)) for home in homes))
        raise DataError(f"{folder} holds more than one data set: {shown}", remedy="give one of these folders")
    return dict(found)


def find_parquet(folder: Path, split: str) -> list[Path]:
    """Return the Parquet files of a split in the layouts of the Hub; raises a DataError if a part is missing."""
    patterns = (f"{split}-*.parquet", f"{split}.parquet", f"{split}/*.parquet")
    places = (sorted(folder.glob(parent + pattern)) for parent in ("", "data/", "*/") for pattern in patterns)
    files = next(filter(None, places), [])
    told = re.search(r"-of-(\d+)\.", files[0].name) if files else None
    if told and int(told[1]) != len(files):
        raise DataError(f"{files[0].parent} holds {len(files)} of {int(told[1])} files of {split}")
    return files


def open_saved(folder: Path) -> dict[str, Any]:
    import datasets

    with explain(folder):
        loaded = datasets.load_from_disk(str(folder))
        return dict(loaded) if isinstance(loaded, datasets.DatasetDict) else {"train": loaded}


def open_files(kind: str, files: Mapping[str, list[Path]], folder: Path, cache: Path) -> dict[str, Any]:
    import datasets

    datasets.disable_progress_bars()
    keys = {split: re.sub(r"\W", "_", split) for split in files}
    paths = {keys[split]: [glob.escape(str(path)) for path in files[split]] for split in files}
    with explain(folder):
        loaded = datasets.load_dataset(kind, data_files=paths, cache_dir=str(cache / "arrow"))
        return {split: loaded[key] for split, key in keys.items()}


@contextmanager
def explain(place: object) -> Iterator[None]:
    """Turn what `datasets` and Arrow raise for damaged files into a DataError."""
    import datasets
    import pyarrow as pa

    kinds = (datasets.exceptions.DatasetsError, datasets.exceptions.DatasetGenerationError, pa.ArrowException)
    try:
        yield
    except (*kinds, OSError, LookupError, TypeError, ValueError, SyntaxError, MemoryError, AttributeError) as error:
        cause = error.__cause__ or error
        raise DataError(
            f"cannot read {place}", why=str(cause).partition("\n")[0], remedy="get the data again"
        ) from error


def choose_columns(tables: Mapping[str, Any], folder: Path, image: str, label: str, *, whole: bool = False) -> Tables:
    """Return the tables with the two columns that are named, or have the types of images and labels.

    With `whole`, labels must be whole numbers, and stay as they are.
    """
    import datasets

    features = next(iter(tables.values())).features
    image = image or _choose("image", [name for name, kind in features.items() if _is_image(kind)], features, folder)
    classes = [name for name, kind in features.items() if isinstance(kind, datasets.ClassLabel)]
    others = [name for name, kind in features.items() if name in LABELS and isinstance(kind, datasets.Value)]
    label = label or _choose("label", classes or others, features, folder)
    chosen = {}
    for split, table in tables.items():
        for name in (image, label):
            if name not in table.features:
                shown = ", ".join(table.features)
                raise DataError(f"{folder} has no column {name} in its split {split}", why=f"it has {shown}")
        with explain(folder):
            part = table.select_columns([image, label] if image != label else [image])
            part = part.rename_columns({image: IMAGE, label: LABEL})
            chosen[split] = part.cast_column(IMAGE, datasets.Image(decode=False))
    return _check_labels(chosen, folder) if whole else _number_labels(chosen, folder)


def _is_image(kind: Any) -> bool:
    import datasets

    raw = isinstance(kind, Mapping) and {"bytes", "path"} == set(kind)
    return raw or isinstance(kind, datasets.Image) or (isinstance(kind, datasets.Value) and kind.dtype == "binary")


def _choose(what: str, found: list[str], features: Mapping[str, Any], folder: Path) -> str:
    if len(found) == 1:
        return found[0]
    raise DataError(
        f"{folder} has {len(found) or 'no'} columns that can be the {what}" + f": {', '.join(found)}" * bool(found),
        why=f"its columns are {', '.join(features)}",
        remedy=f"name the column by --{what}-column",
    )


def read_labels(table: Any) -> NDArray[np.int64]:
    labels: NDArray[np.int64] = table.with_format("arrow")[:][LABEL].to_numpy()
    return labels


def _check_labels(tables: Mapping[str, Any], folder: Path) -> Tables:
    import pyarrow as pa

    for table in tables.values():
        kind = table.data.column(LABEL).type
        if not pa.types.is_integer(kind):
            raise DataError(f"cannot read {folder}", why=f"its labels are of type {kind}, not whole numbers")
    _require_labels({split: list(table[LABEL]) for split, table in tables.items()}, tables, folder)
    return Tables(tables, ())


def _require_labels(columns: Mapping[str, list[Any]], tables: Mapping[str, Any], folder: Path) -> None:
    import datasets

    named = isinstance(next(iter(tables.values())).features[LABEL], datasets.ClassLabel)
    for split, column in columns.items():
        missing = [row for row, value in enumerate(column) if value is None or (named and value == -1)]
        if missing:
            raise DataError(
                f"row {missing[0]} of the split {split} of {folder} has no label",
                why=f"{len(missing)} of {len(column)} rows have none; rows are counted from 0",
                remedy="leave these rows out, or name other splits by --split",
            )


def _number_labels(tables: Mapping[str, Any], folder: Path) -> Tables:
    import datasets

    columns = {split: table.with_format("arrow")[:][LABEL].to_pylist() for split, table in tables.items()}
    _require_labels(columns, tables, folder)
    kind = next(iter(tables.values())).features[LABEL]
    named = isinstance(kind, datasets.ClassLabel)
    if named:
        return Tables(tables, tuple(kind.names))
    values = sorted({value for column in columns.values() for value in column})
    if not all(isinstance(value, str | int) for value in values):
        raise DataError(
            f"the column {LABEL} of {folder} holds no classes",
            why=f"its values are of type {type(values[0]).__name__}",
            remedy="name a column of whole numbers or texts by --label-column",
        )
    numbers = {value: number for number, value in enumerate(values)}
    names = [str(value) for value in values]
    label = datasets.ClassLabel(names=names)
    tables = {
        split: table.remove_columns(LABEL).add_column(
            LABEL, [numbers[value] for value in columns[split]], feature=label
        )
        for split, table in tables.items()
    }
    return Tables(tables, tuple(names))
