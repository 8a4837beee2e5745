"""Loads a user's own images from a folder, an archive or the Hub, and refuses what cannot be trained on."""

import contextlib
import hashlib
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from train import images, origin
from train.config import TrainConfig
from train.data import archives, download, rows
from train.data.dataset import Dataset, Split
from train.data.pictures import Found, Pictures
from train.errors import DataError, PreflightError
from train.files import replacing
from train.options import settle
from train.order import stream

HELD_OUT: Final = 0.2
"""Share of each class that is held out for testing, if the data has no test split."""

BUDGET: Final = 1_000_000_000
"""Bytes of decoded images up to which they are held in memory."""


def load(config: TrainConfig) -> Dataset:
    """Load a user's own images; raises a DataError that names what is wrong."""
    cache = Path(config.cache_dir)
    if config.data_sha256:
        place = Path(config.data_dir)
        if origin.digest_path(place, cache) != config.data_sha256:
            raise DataError(
                f"{place} is not what this run began with",
                why="a file was added, removed or changed since then",
                remedy="give the data as it was, or begin a new run without --config",
            )
        source = str(place)
    else:
        place, source = download.fetch_own(config.dataset, cache)
    folder = archives.open_place(place, cache, config.data_sha256)
    wanted = config.split.split(":") if config.split else []
    tables = rows.open_folder(folder, cache, image=config.image_column, label=config.label_column, given=wanted)
    return _prepare(_choose_splits(tables.splits, wanted, source), tables.names, source, config)


def _choose_splits(tables: Mapping[str, Any], wanted: list[str], source: str) -> dict[str, Any]:
    if wanted:
        missing = [name for name in wanted if rows.SPLITS.get(name, name) not in tables]
        if missing or len(wanted) > 2:
            raise DataError(
                f"{source} has no split {missing[0]}" if missing else "--split names more than two splits",
                why=f"its splits are {', '.join(tables)}",
                remedy="write it as TRAIN or TRAIN:TEST",
            )
        return {use: tables[rows.SPLITS.get(name, name)] for use, name in zip(("train", "test"), wanted, strict=False)}
    if len(tables) == 1:
        return {"train": next(iter(tables.values()))}
    if "train" not in tables:
        raise DataError(
            f"{source} has no split to train on",
            why=f"its splits are {', '.join(tables)}",
            remedy="name them by --split TRAIN:TEST",
        )
    uses = {use: tables[use] for use in ("train", "validation", "test") if use in tables}
    if "test" not in uses and "validation" in uses:
        uses["test"] = uses.pop("validation")
    return uses


@dataclass
class _Part:
    pictures: Pictures
    labels: NDArray[np.int32]
    shapes: set[tuple[int, ...]]

    def take(self, indices: NDArray[np.int64]) -> "_Part":
        return _Part(self.pictures.take(indices), self.labels[indices], self.shapes)


def _prepare(tables: Mapping[str, Any], names: tuple[str, ...], source: str, config: TrainConfig) -> Dataset:
    notes: list[str] = []
    parts = {use: _look(use, table, source, notes, config) for use, table in tables.items()}
    if "test" not in parts:
        parts |= _hold_out(parts["train"], notes)
    _check_classes(parts, names, source)
    warnings = _compare(parts, source)
    shapes = {shape for part in parts.values() for shape in part.shapes}
    size = choose_size(shapes, config.image_size)
    config = settle(config, size, names)
    held = sum(len(part.labels) for part in parts.values()) * int(np.prod(size)) <= BUDGET
    splits = {}
    for use, part in parts.items():
        pictures = replace(part.pictures, size=size, center=config.center)
        array = held and not (use == "train" and config.resized and config.augment)
        splits[use] = Split(pictures.read() if array else pictures, part.labels)
    return Dataset(
        splits["train"], splits["test"], names, source, splits.get("validation"), tuple(warnings), tuple(notes)
    )


def choose_size(shapes: set[tuple[int, ...]], given: int) -> tuple[int, int, int]:
    """Return the shape to scale images to: the given size, else their common one if it is small, else the usual one."""
    channels = max(shape[2] for shape in shapes)
    sizes = {shape[:2] for shape in shapes}
    common = next(iter(sizes)) if len(sizes) == 1 else ()
    if not given and common and max(common) <= origin.SMALL:
        return common[0], common[1], channels
    return given or origin.LARGE, given or origin.LARGE, channels


def _look(use: str, table: Any, source: str, notes: list[str], config: TrainConfig) -> _Part:
    """Decode each image once, and leave out those that cannot be used, if asked to. What was seen is remembered."""
    pictures = Pictures(table, f"the {use} split of {source}")
    key = (config.data_sha256 or source, use, config.split, config.image_column, images.RULES, len(table))
    kept = Path(config.cache_dir) / "seen" / f"{hashlib.sha256(repr(key).encode()).hexdigest()[:32]}.npz"
    found = _recall(kept) or list(pictures.look())
    troubles = [one.trouble for one in found if one.trouble]
    if not troubles:
        _remember(kept, found)
    if troubles and not config.skip_broken:
        more = f"; {len(troubles) - 1} more of {len(found)} images cannot be used" if len(troubles) > 1 else ""
        raise DataError(
            troubles[0].what,
            why=troubles[0].why + more,
            remedy=f"{troubles[0].remedy}; --skip-broken leaves out all such images and counts them",
        ) from troubles[0]
    if troubles:
        notes.append(f"{len(troubles)} of {len(found)} {use} images left out; the first: {troubles[0].what}")
    good = np.array([index for index, one in enumerate(found) if not one.trouble], np.int64)
    if not len(good):
        raise DataError(f"the {use} split of {source} has no image that can be used")
    pictures = replace(pictures, digests=tuple(one.digest for one in found))
    labels = rows.read_labels(table).astype(np.int32)
    pictures = pictures.take(good) if troubles else pictures
    return _Part(pictures, labels[good], {one.shape for one in found if not one.trouble})


def _recall(path: Path) -> list[Found]:
    try:
        with np.load(path) as arrays:
            return [
                Found(digest.tobytes(), tuple(shape.tolist())) for digest, shape in zip(*arrays.values(), strict=True)
            ]
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile):
        return []


def _remember(path: Path, found: list[Found]) -> None:
    digests = np.frombuffer(b"".join(one.digest for one in found), np.uint8).reshape(-1, 32)
    with contextlib.suppress(PreflightError), replacing(path) as file:
        np.savez(file, digests=digests, shapes=np.array([one.shape for one in found]))


def _hold_out(part: _Part, notes: list[str]) -> dict[str, _Part]:
    """Split a share of each class off for testing. The choice is always the same for the same images."""
    numbers, held = stream(0, "split"), []
    for label in np.unique(part.labels):
        of_class = np.flatnonzero(part.labels == label)
        count = max(1, round(HELD_OUT * len(of_class))) if len(of_class) > 1 else 0
        held.append(numbers.permutation(of_class)[:count])
    chosen = np.sort(np.concatenate(held))
    notes.append(
        f"no test split: {len(chosen)} of {len(part.labels)} images, {HELD_OUT:.0%} of each class, are held out"
    )
    return {"train": part.take(np.delete(np.arange(len(part.labels)), chosen)), "test": part.take(chosen)}


def _check_classes(parts: Mapping[str, _Part], names: tuple[str, ...], source: str) -> None:
    trained = set(np.unique(parts["train"].labels).tolist())
    if len(trained) < 2:
        raise DataError(
            f"all training images of {source} are of one class",
            why=f"there is nothing to tell {', '.join(names[label] for label in sorted(trained))} from",
            remedy="give a folder with one folder of images for each of two or more classes",
        )
    for use, part in parts.items():
        unknown = sorted(set(np.unique(part.labels).tolist()) - trained)
        if unknown:
            raise DataError(
                f"the {use} split of {source} has a class that the training split lacks: {names[unknown[0]]}",
                why="a model cannot answer what it has not been trained on",
                remedy="add images of it to the training split, or remove it",
            )


def _compare(parts: Mapping[str, _Part], source: str) -> list[str]:
    trained = set(parts["train"].pictures.digests)
    shared = {use: sum(digest in trained for digest in part.pictures.digests) for use, part in parts.items()}
    return [
        f"{count} of {len(parts[use].labels)} {use} images of {source} are also training images, byte for byte: "
        f"the {use} accuracy is too good"
        for use, count in shared.items()
        if use != "train" and count
    ]
