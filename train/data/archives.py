"""Unpacks archives of images into the cache. Only files inside of the folder are written, and no links."""

import errno
import shutil
import tarfile
import tempfile
import zipfile
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Final

from train.config import origin
from train.data.kinds import read_kind
from train.data.layout import Place
from train.data.tables import explain
from train.errors import DataError
from train.system import budget
from train.system.files import writing

LINK: Final = 0o12
"""Type of a link among the types of files of Unix, which a .zip keeps above the 28 lower bits."""

ENCRYPTED: Final = 1
"""Bit of a member's flags in a .zip."""

TAKEN: Final = "give a folder of images, a .zip or .tar of one, or a Parquet or Arrow file"

_MISFITS: Final = frozenset(
    (errno.ENAMETOOLONG, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.EINVAL, errno.EILSEQ, errno.ENOTEMPTY)
)
"""Errors of writing that are about the names in an archive, not about the disk."""


@dataclass(frozen=True)
class Member:
    """A file or folder in an archive, by its path with slashes, and how the archive itself knows it."""

    name: str
    size: int
    kind: str  # file, folder, encrypted or other
    entry: zipfile.ZipInfo | tarfile.TarInfo


def open_place(place: Path, cache: Path, digest: str, given: Collection[str] = (), shown: str = "") -> Place:
    """Return the folder with the data of a folder or an archive: the innermost around all of it.

    A table is returned as it is, and so is the folder of a split that is `given`. `shown` names the place in messages.
    """
    shown = shown or str(place)
    names = origin.list_files(place) if place.is_dir() else []
    if len(names) == 1 and names[0].endswith(origin.ARCHIVES):  # which may hold nothing but an archive
        place, shown = place / names[0], f"{shown}/{names[0]}"
        digest = origin.digest_path(place, cache)
    if place.is_file() and read_kind(place).use == "table":
        return Place(place, shown)
    folder = place if place.is_dir() else _unpack(place, cache / "unpacked" / digest[:32])
    shown += "" if place.is_dir() else "!"
    while True:
        entries = [entry for entry in folder.iterdir() if not origin.is_foreign(entry.name)]
        if len(entries) != 1 or not entries[0].is_dir() or entries[0].name in given or _holds_images(entries[0]):
            return Place(folder, shown)
        folder, shown = entries[0], f"{shown}/{entries[0].name}"


def _holds_images(folder: Path) -> bool:
    return any("/" not in name and origin.is_image(name) for name in origin.list_files(folder))


def _unpack(archive: Path, folder: Path) -> Path:
    if folder.exists():
        return folder
    members = _list(archive)
    _check(archive, members)
    with explain(archive, "unpack", "make the archive again"), writing(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".unpacking.") as parent:
            new = Path(parent) / "new"
            _extract(archive, members, new)
            new.rename(folder)
    return folder


def _list(archive: Path) -> list[Member]:
    """Return the members of an archive. Raises a DataError that says what a file is that is no whole archive."""
    try:
        return list(_list_members(archive))
    except Exception as error:
        kind = read_kind(archive)
        is_archive = kind.use == "unpack"
        raise DataError(
            f"cannot unpack {archive}"
            if is_archive or archive.name.endswith(origin.ARCHIVES)
            else f"cannot use {archive}",
            why=f"it is {kind.described}" + ", but is cut off or damaged" * is_archive,
            remedy="get or make it again" if is_archive else TAKEN,
        ) from error


def _extract(archive: Path, members: Iterable[Member], folder: Path) -> None:
    """Write plain files and folders with the modes of new ones, whatever the archive says about modes and owners."""
    folder.mkdir()
    with _open(archive) as opened:
        for member in members:
            target = folder / member.name
            try:
                (target if member.kind == "folder" else target.parent).mkdir(parents=True, exist_ok=True)
                if member.kind == "file" and (content := _read(opened, member)):
                    with content, target.open("wb") as file:
                        shutil.copyfileobj(content, file)
            except OSError as error:
                if error.errno and error.errno not in _MISFITS:
                    raise
                raise DataError(
                    f"cannot unpack {archive}!/{member.name}",
                    why=error.strerror or str(error),
                    remedy="make the archive again, with names that a folder can hold",
                ) from error


def _open(archive: Path) -> zipfile.ZipFile | tarfile.TarFile:
    return zipfile.ZipFile(archive) if zipfile.is_zipfile(archive) else tarfile.open(archive)


def _read(opened: zipfile.ZipFile | tarfile.TarFile, member: Member) -> IO[bytes] | None:
    if isinstance(opened, zipfile.ZipFile):
        return opened.open(member.entry)  # type: ignore[arg-type]
    return opened.extractfile(member.entry)  # type: ignore[arg-type]


def _check(archive: Path, members: list[Member]) -> None:
    """Raise a DataError if an archive would write elsewhere, fill the disk, or cannot be read without a password."""
    size, unpacked = archive.stat().st_size, 0
    for member in members:
        path, unpacked = PurePosixPath(member.name), unpacked + member.size
        if member.kind == "encrypted":
            raise DataError(
                f"{archive} is encrypted",
                why=f"{member.name} can be read with a password only",
                remedy="unpack it, and give the folder, or make the archive again without a password",
            )
        if member.kind == "other" or path.is_absolute() or ".." in path.parts:
            outside = "an absolute path" if path.is_absolute() else "a path that leads out of the folder"
            trouble = "a link or a device" if member.kind == "other" else outside
            raise DataError(
                f"{archive} holds {trouble}: {member.name}",
                why="to unpack it could write elsewhere",
                remedy="make the archive again from plain folders and files",
            )
        budget.require(archive, unpacked, size)


def _list_members(archive: Path) -> Iterator[Member]:
    if not zipfile.is_zipfile(archive):
        with tarfile.open(archive) as tar:
            for entry in tar:
                kind = "file" if entry.isfile() else "folder" if entry.isdir() else "other"
                yield Member(entry.name, entry.size, kind, entry)
        return
    with zipfile.ZipFile(archive) as zipped:
        infos = zipped.infolist()
        # Some programs for Windows separate folders by backslashes, against the format. On Unix one may be in a name.
        windows = not any("/" in info.filename for info in infos)
        for info in infos:
            name = info.filename.replace("\\", "/") if windows or info.create_system == 0 else info.filename
            kind = "other" if info.external_attr >> 28 == LINK else "folder" if name.endswith("/") else "file"
            yield Member(name, info.file_size, "encrypted" if info.flag_bits & ENCRYPTED else kind, info)
