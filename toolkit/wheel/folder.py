"""Reads and stages the folder of a wheel: one wheel, its records, and ``SHA256SUMS`` for ``sha256sum --check``.

The folder is made under a hidden, locked name beside the finished ones, and renamed when it is complete.
"""

import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from toolkit import digest, files
from toolkit.errors import BuildError, IntegrityError

SUMS = "SHA256SUMS"
_LINE = re.compile(r"([0-9a-f]{64}) [ *]([^/\0]+)")
_STAGING_NAME = re.compile(r"\.[0-9a-f]{12}\.[a-z0-9_]{8}")
"""A plan's name and the suffix of ``mkdtemp``; hidden folders of other names are left alone."""


def find_wheel(folder: Path) -> Path:
    """Return the one wheel of a folder. Raises BuildError: there is none, or more than one."""
    wheels = sorted(folder.glob("*.whl"))
    if len(wheels) != 1:
        raise BuildError(
            f"{len(wheels)} wheels in {folder} where one was expected",
            why=", ".join(path.name for path in wheels),
            remedy="look into the build log",
        )
    return wheels[0]


def write_sums(folder: Path) -> dict[str, str]:
    """Write the sums of every file in a folder; returns each file's digest by name."""
    found = _digest_files(folder)
    lines = [f"{value.removeprefix('sha256:')}  {name}\n" for name, value in sorted(found.items())]
    files.write_atomically(folder / SUMS, "".join(lines))
    return found


def check_sums(folder: Path) -> dict[str, str]:
    """Check every file of a folder against its sums; returns each file's digest by name.

    Raises:
        IntegrityError: there are no sums; or files are missing, changed, not listed, or not regular files. The message
            names all of them.
    """
    listed = _read_sums(folder)
    found = _digest_files(folder)
    strange = {path.name for path in folder.iterdir() if not _is_plain(path)}
    wrong = []
    for name in sorted(listed.keys() | found.keys() | strange):
        if name in strange:
            wrong.append(f"{name} is no regular file")
        elif name not in found:
            wrong.append(f"{name} is missing")
        elif name not in listed:
            wrong.append(f"{name} is not in {SUMS}")
        elif found[name] != listed[name]:
            wrong.append(f"{name} is not what {SUMS} says")
    if wrong:
        raise _complain(folder, "; ".join(wrong))
    return found


def check_sum(file: Path) -> None:
    """Check one file against the sums beside it, if there are any. A file that neither exists nor is listed passes.

    Raises:
        IntegrityError: it is changed, missing or not listed, or the sums cannot be read.
    """
    if not (file.parent / SUMS).exists():
        return
    listed = _read_sums(file.parent)
    if not file.exists():
        if file.name in listed:
            raise _complain(file.parent, f"{file.name} is missing")
        return
    if file.name not in listed:
        raise _complain(file.parent, f"{file.name} is not in {SUMS}")
    if digest.digest_file(file) != listed[file.name]:
        raise _complain(file.parent, f"{file.name} is not what {SUMS} says")


def _read_sums(folder: Path) -> dict[str, str]:
    try:
        lines = (folder / SUMS).read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise IntegrityError(
            f"{folder} has no readable {SUMS}", why=str(error), remedy="build the wheel again"
        ) from error
    listed = {}
    for line in lines:
        match = _LINE.fullmatch(line)
        if match is None:
            raise _complain(folder, f"{SUMS} has a line that is no sum: {line[:80]!r}")
        listed[match[2]] = f"sha256:{match[1]}"
    return listed


def _digest_files(folder: Path) -> dict[str, str]:
    return {path.name: digest.digest_file(path) for path in folder.iterdir() if _is_plain(path) and path.name != SUMS}


def _is_plain(path: Path) -> bool:
    """Return whether it is a regular file and no link: a link may lead to another file later."""
    return path.is_file() and not path.is_symlink()


def _complain(folder: Path, why: str) -> IntegrityError:
    return IntegrityError(f"{folder.name} has changed since it was made", why=why, remedy="build the wheel again")


@dataclass(frozen=True, kw_only=True)
class Staging:
    """A folder in which one build works."""

    path: Path  # the folder
    lock: int  # open file that holds its lock. A child that inherits it holds the lock until it ends


@contextmanager
def stage(dist: Path, name: str) -> Iterator[Staging]:
    """Make a hidden folder for one build, and remove it at the end unless it was moved.

    The kernel drops its lock when its process, and the processes that inherited the lock, have ended. So a folder that
    is not locked is abandoned, and the next build or ``toolkit clean`` removes it. filelock does not fit: its locks are
    not inherited.
    """
    sweep(dist)
    with _open(dist) as door:
        _flock(door)  # between making and locking, the folder would look abandoned
        path = Path(tempfile.mkdtemp(prefix=f".{name}.", dir=dist))
        lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        _flock(lock)
    try:
        yield Staging(path=path, lock=lock)
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)
        # Again, because a killed build's buildx may have lived on for some seconds after the first time.
        sweep(dist)


def find_staging(dist: Path) -> list[Path]:
    """Return the folders in which builds work or worked until they were killed."""
    try:
        paths = sorted(dist.iterdir())
    except OSError:
        return []
    return [path for path in paths if _STAGING_NAME.fullmatch(path.name) and path.is_dir() and not path.is_symlink()]


def is_abandoned(path: Path) -> bool:
    """Return whether no process holds a folder; false where that cannot be found out."""
    with suppress(OSError), _open(path.parent) as door, _open(path) as lock:
        fcntl.flock(door, fcntl.LOCK_SH)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


def sweep(dist: Path) -> None:
    """Remove the folders that killed builds left."""
    for path in find_staging(dist):
        if is_abandoned(path):
            # Each build makes its own folder, so none comes back to this one.
            shutil.rmtree(path, ignore_errors=True)


def _flock(handle: int) -> None:
    # On a file system without locks nothing is swept either.
    with suppress(OSError):
        fcntl.flock(handle, fcntl.LOCK_EX)


@contextmanager
def _open(folder: Path) -> Iterator[int]:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield handle
    finally:
        os.close(handle)
