"""Reads images batch by batch from where they lie, so that a set of any size takes little memory."""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from train.config import origin
from train.cores import count_cores
from train.data import images
from train.data.order import stream
from train.errors import DataError
from train.system.addresses import hide
from train.system.files import read_file, write_text
from train.system.output import translate

IMAGE: Final = "image"
"""Name of the column of a table with the images, which are not decoded there."""

SEEN: Final = ("digests", "shapes", "looks")
"""What `Pictures.look` finds out of each image."""

CHUNK: Final = 256
"""Images that are read at a time."""


@cache
def _start_pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(count_cores(), thread_name_prefix="images")


@dataclass(frozen=True)
class Files:
    """Files of images in the form of a table of `datasets`, which takes a second to load."""

    paths: tuple[str, ...]  # relative to the folder of the data set

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, rows: Sequence[int]) -> dict[str, list[Any]]:
        return {IMAGE: [{"bytes": None, "path": self.paths[row]} for row in rows]}

    def select(self, rows: Iterable[int]) -> "Files":
        return Files(tuple(self.paths[row] for row in rows))


@dataclass(frozen=True)
class Broken:
    """An image that cannot be used: how messages name it, and why."""

    image: str
    error: DataError


def write_report(path: Path, broken: Iterable[tuple[str, str]]) -> None:
    """Write a line of JSON for each image that cannot be used: its name, and why."""
    lines = (json.dumps({"image": translate(image), "reason": translate(reason)}) for image, reason in broken)
    write_text(path, "".join(f"{line}\n" for line in lines))


@dataclass(frozen=True, eq=False)
class Pictures:
    """The images of a table, of any size, as an array of (count, height, width, channels), read when indexed."""

    table: Any
    place: str  # names the table in messages
    folder: Path  # of the data set: paths of images begin there, and no file outside of it is read
    shown: str  # names the folder in messages
    digests: NDArray[np.uint8] = field(default_factory=lambda: np.empty((0, 32), np.uint8))
    """SHA-256 of the images' bytes when the run began, if they have been looked at: (count, 32)."""
    shapes: NDArray[np.int32] = field(default_factory=lambda: np.empty((0, 3), np.int32))
    """Their shapes in their files, before scaling: (count, 3)."""
    looks: NDArray[np.uint64] = field(default_factory=lambda: np.empty(0, np.uint64))
    """Their difference hashes: (count,). Pictures that look the same have the same one."""
    size: tuple[int, int, int] = (0, 0, 0)
    center: float = 1.0  # share of an image's shorter side that is looked at
    exactly: bool = False  # the images must have this size in their files

    def __len__(self) -> int:
        return len(self.table)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        return len(self), *self.size

    @property
    def nbytes(self) -> int:
        """Number of bytes that are held: none."""
        return 0

    def take(self, indices: NDArray[np.int64], axis: int = 0) -> "Pictures":
        """Return some images, as `take` of an array does along its first axis."""
        taken = {name: getattr(self, name).take(indices, axis) for name in SEEN if len(getattr(self, name))}
        return replace(self, table=self.table.select(indices), **taken)

    def __getitem__(self, chosen: Any) -> NDArray[np.uint8]:
        """Return the central parts of some images, scaled to `size`."""
        indices = range(*chosen.indices(len(self))) if isinstance(chosen, slice) else chosen
        return self._read(indices, lambda _, image: images.center_crop(image, self.size, self.center))

    def crop(self, chosen: NDArray[np.int64], seed: int, epoch: int, *, flip: bool) -> NDArray[np.uint8]:
        """Return random parts of some images, scaled to `size`: a function of (seed, epoch, example) alone."""

        def cut(index: int, image: Any) -> NDArray[np.uint8]:
            box, mirrored = images.draw_crop(stream(seed, "crop", epoch, index), image.width, image.height)
            part = images.resized_crop(image, box, self.size)
            return part[:, ::-1] if flip and mirrored else part

        return self._read(chosen, cut)

    def name(self, index: int, row: Any) -> str:
        """Return how messages name an image: by its path if it is a file, else by its row."""
        path = row["path"] if row and row["bytes"] is None else ""
        return self._show(path) or f"row {index} of {self.place}"

    def _show(self, path: str | None) -> str:
        if not path:
            return ""
        place = self.folder / path
        return f"{self.shown}/{place.relative_to(self.folder)}" if place.is_relative_to(self.folder) else path

    def look(self) -> tuple["Pictures", list["Broken | None"]]:
        """Decode each image once. Return the images with what was seen of them, and those that are broken."""
        digests, shapes = np.zeros((len(self), 32), np.uint8), np.zeros((len(self), 3), np.int32)
        looks = np.zeros(len(self), np.uint64)

        def see(index: int, row: Any) -> Broken | None:
            try:
                content, name = self._open(index, row)
                digests[index] = list(hashlib.sha256(content).digest())
                image = images.load(content, name)
                shapes[index], looks[index] = _measure(image), images.hash_differences(image)
            except DataError as error:
                return Broken(self.name(index, row), error)
            return None

        seen = replace(self, digests=digests, shapes=shapes, looks=looks)
        return seen, list(self._visit(range(len(self)), see))

    def _visit(self, indices: Sequence[int] | NDArray[np.int64], use: Callable[[int, Any], Any]) -> Iterator[Any]:
        for start in range(0, len(indices), CHUNK):
            numbers = [int(index) for index in indices[start : start + CHUNK]]
            yield from _start_pool().map(use, numbers, self.table[numbers][IMAGE])

    def _read(self, indices: Sequence[int] | NDArray[np.int64], use: Callable[[int, Any], Any]) -> NDArray[np.uint8]:
        def make(index: int, row: Any) -> Any:
            content, name = self._open(index, row)
            if len(self.digests) and hashlib.sha256(content).digest() != self.digests[index].tobytes():
                raise DataError(f"{name} is not what it was when the run began", remedy="begin the run anew")
            image = images.load(content, name)
            if self.exactly and (shape := _measure(image)) != self.size:
                raise DataError(
                    f"cannot use row {index} of {self.place}", why=f"the image has shape {shape}, not {self.size}"
                )
            return use(index, image)

        array = np.empty((len(indices), *self.size), np.uint8)
        for place, pixels in zip(array, self._visit(indices, make), strict=True):
            place[...] = pixels
        return array

    def _open(self, index: int, row: Any) -> tuple[bytes, str]:
        name = f"the image in row {index} of {self.place}"
        if row is None:
            raise DataError(f"{name} is missing", remedy="leave the row out")
        content, path = row["bytes"], row["path"]
        if content is not None:
            return content, name
        if not path:
            raise DataError(f"{name} has neither bytes nor a path", remedy="leave the row out")
        if origin.ADDRESS.fullmatch(path):
            raise DataError(
                f"cannot read {name}",
                why=f"it is an address, and addresses are not fetched: {hide(path)}",
                remedy="download the images, and put their contents or the paths of the files into the table",
            )
        if not origin.lies_inside(self.folder / path, self.folder):
            raise DataError(
                f"cannot read {name}",
                why=f"its path leads out of the folder of the data set: {path}",
                remedy="put the file into that folder, or its content into the table",
            )
        return read_file(self.folder / path, images.MOST_BYTES, self._show(path)), self._show(path)


def _measure(image: Any) -> tuple[int, int, int]:
    return image.height, image.width, len(image.getbands())
