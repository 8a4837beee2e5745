"""Unpacks archives of images into the cache. Only files inside of the folder are written, and no links."""

import shutil
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, Final, NamedTuple

from train import origin
from train.errors import DataError
from train.files import writing

MOST_TIMES: Final = 100
"""Largest size of what is unpacked, in sizes of the archive. Images hardly shrink; more is made to fill a disk."""

FREE: Final = 100_000_000
LINK: Final = 0o120000


class _Member(NamedTuple):
    name: str
    is_folder: bool
    is_file: bool
    size: int
    open: Callable[[], IO[bytes] | None]


def open_place(place: Path, cache: Path, digest: str) -> Path:
    """Return the folder with the data of a folder or an archive: the innermost around all of it."""
    if place.is_dir():  # which may hold nothing but an archive
        names = origin.list_files(place)
        if len(names) == 1 and names[0].endswith(origin.ARCHIVES):
            place = place / names[0]
            digest = origin.digest_path(place, cache)
    folder = _unpack(place, cache / "unpacked" / digest[:32]) if place.is_file() else place
    while True:
        entries = [entry for entry in folder.iterdir() if not entry.name.startswith((".", "__MACOSX"))]
        if len(entries) != 1 or not entries[0].is_dir() or not _is_around(entries[0]):
            return folder
        folder = entries[0]


def _is_around(folder: Path) -> bool:
    names = origin.list_files(folder)
    return not any("/" not in name and Path(name).suffix.lower() in origin.SUFFIXES for name in names)


def _unpack(archive: Path, folder: Path) -> Path:
    if folder.exists():
        return folder
    with writing(folder), _list_members(archive) as members:
        folder.parent.mkdir(parents=True, exist_ok=True)
        left = MOST_TIMES * archive.stat().st_size + FREE
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".unpacking.") as parent:
            new = Path(parent) / "new"
            new.mkdir()
            for member in members:
                target = new / _check(archive, member)
                left -= member.size
                if left < 0:
                    raise DataError(
                        f"{archive} unpacks to more than {MOST_TIMES} times its size",
                        why="it was made to fill a disk",
                        remedy="unpack it by hand, and give the folder",
                    )
                if member.is_file:
                    target.parent.mkdir(parents=True, exist_ok=True)
                    with target.open("xb") as file:
                        if source := member.open():
                            shutil.copyfileobj(source, file)
            new.rename(folder)
    return folder


def _check(archive: Path, member: _Member) -> PurePosixPath:
    path = PurePosixPath(member.name)
    trouble = (
        "an absolute path"
        if path.is_absolute()
        else "a path that leads out of the folder"
        if ".." in path.parts
        else ""
    )
    if not member.is_file and not member.is_folder:
        trouble = "a link or a device"
    if trouble:
        raise DataError(
            f"{archive} holds {trouble}: {member.name}",
            why="to unpack it could write elsewhere",
            remedy="make the archive again from plain folders and files",
        )
    return path


@contextmanager
def _list_members(archive: Path) -> Iterator[Iterator[_Member]]:
    try:
        if zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as zipped:
                yield (_describe(zipped, info) for info in zipped.infolist())
        else:
            with tarfile.open(archive) as tar:
                yield (
                    _Member(info.name, info.isdir(), info.isreg(), info.size, partial(tar.extractfile, info))
                    for info in tar
                )
    except (zipfile.BadZipFile, tarfile.TarError, EOFError, NotImplementedError, RuntimeError) as error:
        raise DataError(
            f"cannot unpack {archive}",
            why=str(error),
            remedy="give a .zip or .tar of a folder of images, or the folder itself",
        ) from error


def _describe(zipped: zipfile.ZipFile, info: zipfile.ZipInfo) -> _Member:
    is_link = info.external_attr >> 16 & 0o170000 == LINK
    is_file = not info.is_dir() and not is_link
    return _Member(info.filename, info.is_dir(), is_file, info.file_size, partial(zipped.open, info))
