"""Finds splits, classes and images in a folder by the names of its files, and says what is left out."""

import os
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from train.config import origin
from train.data.kinds import read_kind
from train.errors import DataError

SPLITS: Final = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("validation", "valid", "val", "dev"), "validation"),
    **dict.fromkeys(("test", "testing", "eval"), "test"),
}
"""The split that a folder or file of this name holds. Case does not matter."""

LEAST_CLASSES: Final = 2
"""Folders of classes that make a folder named train a split, where folders of other names lie beside it."""

_SHOWN: Final = 3


@dataclass(frozen=True)
class Layout:
    """What makes up each split, and a sentence on what is left out.

    A split is made up of tables, of paths of tables, or of paths of images with the names of their classes.
    """

    splits: Mapping[str, list[Any]]
    left_out: str = ""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Place:
    """A folder that is read, and its name in messages: an unpacked archive has its own, not its path in the cache."""

    folder: Path
    shown: str

    def show(self, name: str) -> str:
        """Return how a message names a file or folder in there, given its path relative to the folder."""
        return f"{self.shown}/{name}" if name else self.shown


def name_split(name: str) -> str:
    return SPLITS.get(name.lower(), name)


def arrange(place: Place, names: Sequence[str], given: Collection[str] = ()) -> Layout:
    """Return the layout of a folder of images, given the paths of its files relative to it, and splits by --split.

    Raises a DataError if there are no images, or if one has no class.
    """
    wanted = [name for name in names if not origin.is_foreign(name)]
    images = [name for name in wanted if origin.is_image(name)]
    others = [name for name in wanted if not origin.is_image(name)]
    special = [name for name in origin.list_special(place.folder) if not origin.is_foreign(name)]
    strange = "; ".join(filter(None, [describe_others(place, others), _describe_special(special)]))
    if not images:
        raise DataError(
            f"there are no images in {place.shown}",
            why=f"left out: {strange}" if strange else "it holds neither files of images nor Parquet or Arrow files",
            remedy="give a folder with one folder of images for each class",
        )
    start = _find_start(images, given)
    inside = [_drop_repeated(name.removeprefix(start).split("/")) for name in images]
    tops = _find_splits(Place(place.folder, place.show(start.rstrip("/"))), inside, given)
    splits: dict[str, list[tuple[str, str]]] = defaultdict(list)
    beside: Counter[str] = Counter()
    for name, parts in zip(images, inside, strict=True):
        if tops and parts[0] not in tops:
            beside[f"{parts[0]}/" if len(parts) > 1 else ""] += 1
            continue
        below = parts[1:] if tops else parts
        if len(below) < 2:
            raise _refuse_unlabelled(place, name, parts, split=bool(tops))
        if name.encode(errors="replace").decode() != name:
            what = f"{place.show(name)} has a name that is no text"
            raise DataError(what, why="its bytes are not UTF-8", remedy="rename it")
        kind = parts[0] if parts[0] in given else name_split(parts[0])
        splits[kind if tops else "train"].append((name, below[0]))
    empty = _find_empty(place, start, tops, inside)
    sentences = [_describe_beside(beside, tops), strange, _describe_empty(empty)]
    return Layout(splits, "; ".join(filter(None, sentences)), () if tops else _find_doubtful(place, inside))


def describe_others(place: Place, names: Sequence[str]) -> str:
    """Return a sentence on files that have no suffix of an image, by suffix, by folder and by content."""
    if not names:
        return ""
    suffixes = Counter(os.path.splitext(name)[1].lower() or "no suffix" for name in names)  # noqa: PTH122
    homes = Counter(name.rpartition("/")[0] or "the folder itself" for name in names)
    text = f"{_count(len(names), 'file')} without the suffix of an image ({_list(suffixes)}; in {_list(homes)})"
    known = [(name, kind) for name in names if (kind := read_kind(place.folder / name)).name]
    readable = [(name, kind) for name, kind in known if kind.use == "read"]
    if readable:
        name, kind = readable[0]
        text += (
            f", of which {len(readable)} {'is an image' if len(readable) == 1 else 'are images'} by content, such as "
            f"{place.show(name)} ({kind.name}): let the name end with the suffix of the format, here {kind.suffix}"
        )
    foreign = Counter(kind.name for _, kind in known if kind.use in {"convert", "heif"})
    if foreign:
        text += f", of which {sum(foreign.values())} could be converted to PNG or JPEG ({_list(foreign)})"
    return text


def _find_start(images: Sequence[str], given: Collection[str]) -> str:
    """Return the path of the innermost folder around all images that is not the folder of their class or split."""
    start = ""
    while True:
        inside = [name.removeprefix(start).split("/") for name in images]
        tops = {parts[0] for parts in inside}
        if len(tops) > 1 or min(map(len, inside)) < 3 or tops & set(given):
            return start
        start += f"{tops.pop()}/"


def _find_splits(place: Place, inside: Sequence[Sequence[str]], given: Collection[str]) -> set[str]:
    """Return the folders that hold a split each; none if the folders are those of classes.

    A folder named as a split is one if the images in it lie in folders of classes. With other folders beside it there
    must be one to train on, with two or more classes.
    """
    tops = {parts[0] for parts in inside if len(parts) > 1}
    named = [{name} & tops or {top for top in tops if name_split(top) == name_split(name)} for name in given]
    if named and all(named):
        return set().union(*named)
    flat = {parts[0] for parts in inside if len(parts) == 2}
    classes = {top: found for top in tops if top.lower() in SPLITS and (found := _list_classes(inside, top))}
    nested = set(classes)
    if nested == tops and all(len(parts) > 1 for parts in inside):
        return nested
    if any(name_split(top) == "train" and len(classes[top]) >= LEAST_CLASSES for top in nested - flat):
        return nested
    for top in nested - flat:
        if classes[top] <= tops - {top}:
            raise DataError(
                f"{place.show(top)} holds folders of the same names as lie beside it: {_shorten(sorted(classes[top]))}",
                why="it can be a split or a class",
                remedy="put the other folders into a folder train beside it, or move it away",
            )
    return set()


def _drop_repeated(parts: list[str]) -> list[str]:
    """Return a path without its second folder if that has the name of the first, as archivers like to put it."""
    return parts[1:] if len(parts) > 3 and parts[0].lower() == parts[1].lower() else parts


def _find_doubtful(place: Place, inside: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """Return a warning if folders that are read as classes look like splits.

    They do if two of them hold the same two or more folders, or if one has the name of a split and holds folders alone.
    """
    alike: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for top in sorted({parts[0] for parts in inside}):
        alike[tuple(sorted(_list_classes(inside, top)))].append(top)
    similar = next((tops for names, tops in alike.items() if len(tops) > 1 and len(names) >= LEAST_CLASSES), [])
    if similar:
        warning = f"{_shorten(similar)} of {place.shown} are read as classes, but hold folders of the same names"
        return (f"{warning}; if they are splits, name them by --split TRAIN:TEST",)
    flat = {parts[0] for parts in inside if len(parts) == 2}
    for top in sorted({parts[0] for parts in inside if len(parts) > 2} - flat):
        if top.lower() in SPLITS:
            inner = _shorten(sorted(_list_classes(inside, top)))
            warning = f"{place.show(top)} is read as a class, but has the name of a split and holds folders: {inner}"
            return (f"{warning}; if it is a split, put all other folders into it, or name it by --split {top}",)
    return ()


def _list_classes(inside: Iterable[Sequence[str]], top: str) -> set[str]:
    return {parts[1] for parts in inside if parts[0] == top and len(parts) > 2}


def _refuse_unlabelled(place: Place, name: str, parts: Sequence[str], *, split: bool) -> DataError:
    if split and len(parts) == 2:
        return DataError(
            f"{place.show(name)} has no label",
            why=f"{parts[0]} is read as a split, in which the images of each class lie in a folder of their own",
            remedy="put it into the folder of its class, or take it out of the split",
        )
    return DataError(
        f"{place.show(name)} has no label",
        why="an image's label is the name of the folder that it lies in",
        remedy="put the images of each class into a folder of its own",
    )


def _find_empty(place: Place, start: str, tops: Collection[str], inside: Iterable[Sequence[str]]) -> list[str]:
    """Return the folders of classes, and those of splits, that have no image."""
    depth = 1 if tops else 0
    filled = {"/".join(parts[: depth + 1]) for parts in inside if len(parts) > depth + 1}
    homes = [f"{top}/" for top in sorted(tops)] or [""]
    folders = [f"{home}{name}" for home in homes for name in _list_folders(place.folder / start / home)]
    repeated = {f"{top}/{top}".lower() for top in tops}
    return [name for name in folders if name not in filled and name.lower() not in repeated]


def _list_folders(folder: Path) -> Iterator[str]:
    with os.scandir(folder) as entries:
        yield from sorted(entry.name for entry in entries if entry.is_dir() and not origin.is_foreign(f"{entry.name}/"))


def _describe_beside(beside: Mapping[str, int], tops: Iterable[str]) -> str:
    if not beside:
        return ""
    shown = [f"{_count(count, 'image')} in {top or 'the folder itself'}" for top, count in beside.items()]
    return f"{_shorten(shown)} beside the folders of the splits ({', '.join(sorted(tops))})"


def _describe_special(names: Sequence[str]) -> str:
    """Return a sentence about named pipes, sockets and devices, which are never opened."""
    if not names:
        return ""
    what = "pipe, socket or device" if len(names) == 1 else "pipes, sockets or devices"
    return f"{len(names)} {what}, never opened: {_shorten(names)}"


def _describe_empty(names: Sequence[str]) -> str:
    if not names:
        return ""
    return f"{'class' if len(names) == 1 else 'classes'} without an image: {_shorten(names)}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


def _list(counts: Counter[str]) -> str:
    return _shorten([f"{name}: {count}" for name, count in counts.most_common()])


def _shorten(words: Sequence[str]) -> str:
    more = len(words) - _SHOWN
    return ", ".join(words[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
