"""Loads a user's own images from a folder, an archive or the Hub, and refuses what cannot be trained on."""

import contextlib
import hashlib
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from train.config import origin
from train.config.resolution import complete
from train.config.run import TrainConfig
from train.data import archives, download, images, tables
from train.data.checks import check_classes, find_alike, find_overlap
from train.data.dataset import Dataset, Split
from train.data.order import stream
from train.errors import DataError, PreflightError
from train.system.files import replacing

HELD_OUT: Final = 0.2
"""Share of each class that is held out for testing, if the data has no test split."""

BUDGET: Final = 1_000_000_000
"""Bytes of decoded images up to which they are held in memory."""


def load(config: TrainConfig) -> Dataset:
    """Load a user's own images; raises a DataError that names what is wrong."""
    cache, given, notes = Path(config.cache_dir), config.split.split(":") if config.split else [], list[str]()
    if config.data_sha256:
        place, source = Path(config.data_dir), config.data_dir
        if origin.digest_path(place, cache) != config.data_sha256:
            raise DataError(
                f"{place} is not what this run began with",
                why="a file was added, removed or changed since then",
                remedy="give the data as it was, or begin a new run without --config",
            )
    else:
        place, source = download.fetch_own(config.dataset, cache)
    if len(given) > 2:
        raise DataError("--split names more than two splits", remedy="write it as TRAIN or TRAIN:TEST")
    folder = archives.open_place(place, cache, config.data_sha256)
    parts = {use: [name] for use, name in zip(("train", "test"), given, strict=False)}
    found, names = tables.open_folder(
        folder, cache, source, parts, image=config.image_column, label=config.label_column
    )
    splits = {use: _look(use, split, source, notes, config) for use, split in found.items()}
    if "test" not in splits:
        splits |= _hold_out(splits["train"], notes)
    check_classes(splits, names, source)
    size = choose_size(np.concatenate([split.images.shapes for split in splits.values()]), config.image_size)
    config = complete(config, size, names)
    held = sum(map(len, splits.values())) * int(np.prod(size)) <= BUDGET
    warnings = (*find_alike(names, source), *find_overlap(splits, source))
    for use, split in splits.items():
        pictures = replace(split.images, size=config.shape, center=config.center)
        array = held and not (use == "train" and config.resized and config.augment)
        splits[use] = Split(pictures[:] if array else pictures, split.labels)
    return Dataset(splits["train"], splits["test"], names, source, splits.get("validation"), warnings, tuple(notes))


def choose_size(shapes: NDArray[np.int32], given: int) -> tuple[int, int, int]:
    """Return the shape to scale images to: the given size, else their common one if it is small, else the usual one."""
    channels, sizes = int(shapes[:, 2].max()), np.unique(shapes[:, :2], axis=0)
    if not given and len(sizes) == 1 and sizes.max() <= origin.SMALL:
        return int(sizes[0, 0]), int(sizes[0, 1]), channels
    return given or origin.LARGE, given or origin.LARGE, channels


def _look(use: str, split: Split, source: str, notes: list[str], config: TrainConfig) -> Split:
    """Decode each image once, and leave out those that cannot be used, if asked to. What was seen is remembered."""
    key = (config.data_sha256 or source, use, config.split, config.image_column, images.RULES, len(split))
    kept = Path(config.cache_dir) / "seen" / f"{hashlib.sha256(repr(key).encode()).hexdigest()[:32]}.npz"
    try:
        with np.load(kept) as known:
            return Split(replace(split.images, **known), split.labels)
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile):
        pictures, found = split.images.look()
    troubles = [one for one in found if one]
    if not troubles:
        with contextlib.suppress(PreflightError), replacing(kept) as file:
            np.savez(file, digests=pictures.digests, shapes=pictures.shapes)
        return Split(pictures, split.labels)
    first, good = troubles[0], np.flatnonzero([one is None for one in found])
    if not config.skip_broken:
        more = f"; {len(troubles) - 1} more of {len(found)} images cannot be used" if len(troubles) > 1 else ""
        advice = f"{first.remedy}; --skip-broken leaves out all such images and counts them"
        raise DataError(first.what, why=first.why + more, remedy=advice) from first
    if not len(good):
        raise DataError(f"the {use} split of {source} has no image that can be used")
    notes.append(f"{len(troubles)} of {len(found)} {use} images left out; the first: {first.what}")
    return Split(pictures, split.labels).take(good)


def _hold_out(split: Split, notes: list[str]) -> dict[str, Split]:
    """Split a share of each class off for testing. The choice is always the same for the same images."""
    numbers, held = stream(0, "split"), []
    for label in np.unique(split.labels):
        of_class = np.flatnonzero(split.labels == label)
        count = max(1, round(HELD_OUT * len(of_class))) if len(of_class) > 1 else 0
        held.append(numbers.permutation(of_class)[:count])
    chosen = np.sort(np.concatenate(held))
    notes.append(f"no test split: {len(chosen)} of {len(split)} images, {HELD_OUT:.0%} of each class, are held out")
    return {"train": split.take(np.delete(np.arange(len(split)), chosen)), "test": split.take(chosen)}
