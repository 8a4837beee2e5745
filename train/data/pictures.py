"""Reads images batch by batch from where they lie, so that a set of any size takes little memory."""

import hashlib
import math
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from train import images
from train.cores import count_cores
from train.data.rows import IMAGE
from train.errors import DataError
from train.order import stream

CHUNK: Final = 256
"""Images that are read at a time."""

AREA: Final = (0.08, 1.0)
RATIO: Final = (3 / 4, 4 / 3)
ATTEMPTS: Final = 10
"""Share and proportions of a random part of an image (Szegedy et al., arXiv 1409.4842, section 6)."""


class Found(NamedTuple):
    """What a first look at an image tells: SHA-256 of its bytes, its shape, or why it cannot be used."""

    digest: bytes
    shape: tuple[int, ...] = ()
    trouble: DataError | None = None


@cache
def _start_pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(count_cores(), thread_name_prefix="images")


@dataclass(frozen=True, eq=False)
class Pictures:
    """The images of a table, of any size, as an array of (count, height, width, channels), read when indexed."""

    table: Any
    place: str  # names the table in messages
    digests: tuple[bytes, ...] = ()  # of the images' bytes when the run began
    size: tuple[int, int, int] = (0, 0, 0)
    center: float = 1.0  # share of an image's shorter side that is looked at

    def __len__(self) -> int:
        return len(self.table)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        return len(self), *self.size

    @property
    def nbytes(self) -> int:
        """Number of bytes that are held: none."""
        return 0

    def take(self, indices: NDArray[np.int64]) -> "Pictures":
        digests = tuple(self.digests[index] for index in indices)
        return replace(self, table=self.table.select(indices), digests=digests)

    def __getitem__(self, chosen: Any) -> NDArray[np.uint8]:
        """Return the central parts of some images, scaled to `size`."""
        indices = range(*chosen.indices(len(self))) if isinstance(chosen, slice) else chosen
        return self._map(indices, lambda _, image: images.fit(image, self.size, self.center))

    def read(self, *, exactly: bool = False) -> NDArray[np.uint8]:
        """Return all images as one array; with `exactly`, raise a DataError if one has another shape."""

        def use(index: int, image: Any) -> NDArray[np.uint8]:
            shape = (image.height, image.width, len(image.getbands()))
            if exactly and shape != self.size:
                raise DataError(
                    f"cannot use row {index} of {self.place}", why=f"the image has shape {shape}, not {self.size}"
                )
            return images.fit(image, self.size, self.center)

        array = np.empty(self.shape, np.uint8)
        for start in range(0, len(self), CHUNK):
            part = range(start, min(start + CHUNK, len(self)))
            array[start : part.stop] = self._map(part, use)
        return array

    def crop(self, chosen: NDArray[np.int64], seed: int, epoch: int, *, flip: bool) -> NDArray[np.uint8]:
        """Return random parts of some images, scaled to `size`: a function of (seed, epoch, example) alone."""

        def cut(index: int, image: Any) -> NDArray[np.uint8]:
            box, mirrored = draw_box(stream(seed, "crop", epoch, index), image.width, image.height)
            part = images.cut(image, box, self.size)
            return part[:, ::-1] if flip and mirrored else part

        return self._map(chosen, cut)

    def _map(self, indices: Iterable[int], use: Callable[[int, Any], Any]) -> NDArray[np.uint8]:
        numbers = [int(index) for index in indices]

        def make(index: int, row: Any) -> Any:
            content, name = self._read(index, row)
            if self.digests and hashlib.sha256(content).digest() != self.digests[index]:
                raise DataError(f"{name} is not what it was when the run began", remedy="begin the run anew")
            return use(index, images.load(content, name))

        rows = self.table[numbers][IMAGE] if numbers else []
        parts = list(_start_pool().map(make, numbers, rows))
        return np.stack(parts) if parts else np.empty((0, *self.size), np.uint8)

    def look(self) -> Iterable[Found]:
        """Read and decode each image once, in order."""

        def see(index: int, row: Any) -> Found:
            try:
                content, name = self._read(index, row)
            except DataError as error:
                return Found(b"", trouble=error)
            digest = hashlib.sha256(content).digest()
            try:
                image = images.load(content, name)
            except DataError as error:
                return Found(digest, trouble=error)
            return Found(digest, (image.height, image.width, len(image.getbands())))

        for start in range(0, len(self), CHUNK):
            numbers = range(start, min(start + CHUNK, len(self)))
            yield from _start_pool().map(see, numbers, self.table[start : start + CHUNK][IMAGE])

    def _read(self, index: int, row: Any) -> tuple[bytes, str]:
        name = f"the image in row {index} of {self.place}"
        if row is None:
            raise DataError(f"{name} is missing", remedy="leave the row out, or give --skip-broken")
        content, path = row["bytes"], row["path"]
        if content is not None:
            return content, name
        try:
            return Path(path or "").read_bytes(), str(path)
        except OSError as error:
            raise DataError(f"cannot read {path or name}", why=error.strerror or str(error)) from error


def draw_box(numbers: np.random.Generator, width: int, height: int) -> tuple[images.Box, bool]:
    """Return a random part of an image and whether to mirror it."""
    mirrored = bool(numbers.integers(2))
    for _ in range(ATTEMPTS):
        area = width * height * numbers.uniform(*AREA)
        # NumPy's functions choose their algorithm by the processor, and round differently.
        ratio = math.exp(numbers.uniform(math.log(RATIO[0]), math.log(RATIO[1])))
        across, down = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < across <= width and 0 < down <= height:
            left, top = int(numbers.integers(width - across + 1)), int(numbers.integers(height - down + 1))
            return (left, top, left + across, top + down), mirrored
    half_width, half_height = min(width, height * RATIO[1]) / 2, min(height, width / RATIO[0]) / 2
    middle = width / 2, height / 2
    return (
        middle[0] - half_width, middle[1] - half_height, middle[0] + half_width, middle[1] + half_height
    ), mirrored  # fmt: skip
