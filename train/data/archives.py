"""Unpacks archives of images into the cache. Only files inside of the folder are written, and no links."""

import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Final

from train.config import origin
from train.data.tables import explain
from train.errors import DataError
from train.system.files import writing

MOST_TIMES: Final = 100
"""Largest size of what is unpacked, in sizes of the archive. Images hardly shrink; more is made to fill a disk."""

FREE: Final = 100_000_000
LINK: Final = 0o12
"""Type of a link among the types of files of Unix, which a .zip keeps above the 28 lower bits."""


def open_place(place: Path, cache: Path, digest: str) -> Path:
    """Return the folder with the data of a folder or an archive: the innermost around all of it."""
    names = origin.list_files(place) if place.is_dir() else []
    if len(names) == 1 and names[0].endswith(origin.ARCHIVES):  # which may hold nothing but an archive
        place = place / names[0]
        digest = origin.digest_path(place, cache)
    folder = place if place.is_dir() else _unpack(place, cache / "unpacked" / digest[:32])
    while True:
        entries = [entry for entry in folder.iterdir() if not entry.name.startswith((".", "__MACOSX"))]
        if len(entries) != 1 or not entries[0].is_dir() or _holds_images(entries[0]):
            return folder
        folder = entries[0]


def _holds_images(folder: Path) -> bool:
    return any("/" not in name and Path(name).suffix.lower() in origin.SUFFIXES for name in origin.list_files(folder))


def _unpack(archive: Path, folder: Path) -> Path:
    if folder.exists():
        return folder
    advice = "give a .zip or .tar of a folder of images, or the folder itself"
    with explain(archive, "unpack", advice):
        _check(archive)
        with writing(folder):
            folder.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".unpacking.") as parent:
                new = Path(parent) / "new"
                if zipfile.is_zipfile(archive):
                    with zipfile.ZipFile(archive) as zipped:
                        zipped.extractall(new)  # noqa: S202 - its paths are checked
                else:
                    _extract(archive, new)
                new.rename(folder)
    return folder


def _extract(archive: Path, folder: Path) -> None:
    """Write plain files and folders with the modes of new ones, without the filters that Python 3.11.2 lacks."""
    with tarfile.open(archive) as tar:
        for member in tar:
            target = folder / member.name
            (target if member.isdir() else target.parent).mkdir(parents=True, exist_ok=True)
            if content := tar.extractfile(member):
                target.write_bytes(content.read())


def _check(archive: Path) -> None:
    """Raise a DataError if an archive would write elsewhere, or fill the disk."""
    left = MOST_TIMES * archive.stat().st_size + FREE
    for name, size, is_plain in _list_members(archive):
        path, left = PurePosixPath(name), left - size
        outside = "an absolute path" if path.is_absolute() else "a path that leads out of the folder"
        if not is_plain or path.is_absolute() or ".." in path.parts:
            trouble = outside if is_plain else "a link or a device"
            raise DataError(
                f"{archive} holds {trouble}: {name}",
                why="to unpack it could write elsewhere",
                remedy="make the archive again from plain folders and files",
            )
        if left < 0:
            raise DataError(
                f"{archive} unpacks to more than {MOST_TIMES} times its size",
                why="it was made to fill a disk",
                remedy="unpack it by hand, and give the folder",
            )


def _list_members(archive: Path) -> Iterator[tuple[str, int, bool]]:
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as zipped:
            for info in zipped.infolist():
                yield info.filename, info.file_size, info.external_attr >> 28 != LINK
    else:
        with tarfile.open(archive) as tar:
            for member in tar:
                yield member.name, member.size, member.isfile() or member.isdir()
