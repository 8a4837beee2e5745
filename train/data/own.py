"""Loads a user's own images from a folder, an archive or the Hub, and refuses what cannot be trained on."""

import contextlib
import hashlib
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from train.config import origin
from train.config.configuration import TrainConfig
from train.config.resolution import complete
from train.data import archives, hub, images, tables, twins
from train.data.dataset import Dataset, Split, check_classes, find_alike
from train.data.order import stream
from train.data.pictures import SEEN, Broken, Pictures, write_report
from train.errors import DataError, PreflightError
from train.system.files import replacing

HELD_OUT: Final = 0.2
"""Share of each class that is held out for testing, if the data has no test split."""

BUDGET: Final = 1_000_000_000
"""Bytes of decoded images up to which they are held in memory."""


FEW: Final = 20
"""Images to test on, below which an accuracy is a rough guess."""

_ADVICE: Final = "; --report-broken FILE lists them all"


def load(config: TrainConfig, measured: tuple[int, int, int] | None = None) -> Dataset:
    """Load a user's own images. Raises a DataError that says what is wrong with them.

    To measure a network that takes images of the shape `measured`, all images are the test split if there is none, and
    the classes need not be enough to train on.
    """
    cache, given, notes = Path(config.cache_dir), config.split.split(":") if config.split else [], list[str]()
    if config.data_sha256:
        place, shown, source = Path(config.data_dir), "", config.data_dir
        if origin.digest_path(place, cache) != config.data_sha256:
            raise DataError(
                f"{place} is not what this run began with",
                why="a file was added, removed or changed since then",
                remedy="give the data as it was, or begin a new run without --config",
            )
    else:
        place, shown, source = hub.fetch_own(config.dataset, cache)
    if len(given) > 2:
        raise DataError("--split names more than two splits", remedy="write it as TRAIN or TRAIN:TEST")
    folder = archives.open_place(place, cache, config.data_sha256, given, shown)
    parts = {use: [name] for use, name in zip(("train", "test"), given, strict=False)}
    opened = tables.open_folder(folder, cache, source, parts, image=config.image_column, label=config.label_column)
    _report_left_out(opened.left_out, source, notes, config)
    splits = _look_at_all(opened.splits, source, notes, config)
    if "test" not in splits and measured:
        notes.append(f"no test split: all {len(splits['train'])} images are measured")
        nothing = splits["train"].take(np.arange(0))
        splits = {"train": nothing, "test": splits["train"]}
    elif "test" not in splits:
        splits |= _hold_out(splits["train"], source, notes)
    if not measured:
        check_classes(splits, opened.names, source, opened.left_out)
    size = measured or choose_size(
        np.concatenate([split.images.shapes for split in splits.values()]), config.image_size
    )
    config = complete(config, size, opened.names)
    fits_memory = sum(map(len, splits.values())) * int(np.prod(size)) <= BUDGET
    warnings = (*opened.warnings, *find_alike(opened.names, source), *twins.find(splits, opened.names, source))
    for use, split in splits.items():
        pictures = replace(split.images, size=config.shape, center=config.center)
        array = fits_memory and not (use == "train" and config.resized and config.augment)
        splits[use] = Split(pictures[:] if array else pictures, split.labels)
    validation = splits.get("validation")
    return Dataset(splits["train"], splits["test"], opened.names, source, validation, warnings, tuple(notes))


def choose_size(shapes: NDArray[np.int32], given: int) -> tuple[int, int, int]:
    """Return the shape to scale images to: the given size, else their common one if it is small, else the usual one."""
    channels, sizes = int(shapes[:, 2].max()), np.unique(shapes[:, :2], axis=0)
    if not given and len(sizes) == 1 and sizes.max() <= origin.SMALL:
        return int(sizes[0, 0]), int(sizes[0, 1]), channels
    return given or origin.LARGE, given or origin.LARGE, channels


def _report_left_out(left_out: str, source: str, notes: list[str], config: TrainConfig) -> None:
    """Add a note about the files that are left out. With ``--strict-data``, raise a DataError instead."""
    if left_out and config.strict_data:
        raise DataError(
            f"--strict-data: not all files of {source} can be used",
            why=f"left out would be {left_out}",
            remedy="move these files away, or leave --strict-data out",
        )
    if left_out:
        notes.append(f"left out: {left_out}")


def _look_at_all(splits: Mapping[str, Split], source: str, notes: list[str], config: TrainConfig) -> dict[str, Split]:
    """Decode the images of all splits, report those that are broken, and leave them out if asked to."""
    looked = {use: _look(use, split, source, config) for use, split in splits.items()}
    broken = {use: [one for one in found if one] for use, (_, found) in looked.items()}
    if config.report_broken:
        reasons = [(one.image, one.error.why or one.error.what) for found in broken.values() for one in found]
        write_report(Path(config.report_broken), reasons)
    for use, found in broken.items():
        if found and not config.skip_broken:
            raise _refuse(found, len(splits[use]), config)
        if found:
            # Notes are published with the run, and name no place of this machine.
            every = "; the file of --report-broken lists all" if config.report_broken else _ADVICE * (len(found) > 1)
            first = found[0].error.what
            notes.append(f"{len(found)} of {len(splits[use])} {use} images left out; the first: {first}{every}")
    good = {use: np.flatnonzero([one is None for one in found]) for use, (_, found) in looked.items()}
    if empty := next((use for use, rows in good.items() if not len(rows)), None):
        raise DataError(
            f"the {empty} split of {source} has no image that can be used",
            why=f"the first: {broken[empty][0].error}" if broken[empty] else "",
        )
    return {use: Split(looked[use][0], split.labels).take(good[use]) for use, split in splits.items()}


def _refuse(broken: Sequence[Broken], count: int, config: TrainConfig) -> DataError:
    first = broken[0].error
    more = f"{len(broken) - 1} more of {count} images cannot be used" if len(broken) > 1 else ""
    if config.report_broken:
        more = f"{more}; {config.report_broken} lists them all" if more else more
    elif more:
        more += _ADVICE
    skip = "--skip-broken leaves out all such images and counts them"
    return DataError(
        first.what, why="; ".join(filter(None, [first.why, more])), remedy="; ".join(filter(None, [first.remedy, skip]))
    )


def _look(use: str, split: Split, source: str, config: TrainConfig) -> tuple[Pictures, list[Broken | None]]:
    """Decode each image once, and return those that are broken. What was seen is remembered if none is."""
    key = (config.data_sha256 or source, use, config.split, config.image_column, images.RULES, SEEN, len(split))
    kept = Path(config.cache_dir) / "seen" / f"{hashlib.sha256(repr(key).encode()).hexdigest()[:32]}.npz"
    try:
        with np.load(kept) as known:
            return replace(split.images, **known), [None] * len(split)
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile):
        pictures, found = split.images.look()
    if not any(found):
        with contextlib.suppress(PreflightError), replacing(kept) as file:
            np.savez(file, **{name: getattr(pictures, name) for name in SEEN})
    return pictures, found


def _hold_out(split: Split, source: str, notes: list[str]) -> dict[str, Split]:
    """Split a share of each class off for testing. The choice is always the same for the same images."""
    numbers, held, usual = stream(0, "split"), [], True
    for label in np.unique(split.labels):
        of_class = np.flatnonzero(split.labels == label)
        count = max(1, round(HELD_OUT * len(of_class))) if len(of_class) > 1 else 0
        usual &= count == round(HELD_OUT * len(of_class))
        held.append(numbers.permutation(of_class)[:count])
    chosen = np.sort(np.concatenate(held))
    if not len(chosen):
        raise DataError(
            f"no image of {source} can be held out for testing",
            why="there is no test split, and no class has more than one image",
            remedy="add images, so that a class has two or more, or put some to test on into a folder test",
        )
    share = f"{HELD_OUT:.0%} of each class" if usual else f"{HELD_OUT:.0%} of each class, or one image of a small class"
    held_out = (
        f"no test split: {len(chosen)} of {len(split)} images, {share}, {'is' if len(chosen) == 1 else 'are'} held out"
    )
    rough = f"; one image more or less that is right changes the test accuracy by {1 / len(chosen):.0%}"
    notes.append(held_out + (rough if len(chosen) < FEW else ""))
    return {"train": split.take(np.delete(np.arange(len(split)), chosen)), "test": split.take(chosen)}
