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
    """Write the checksums of every file in a folder, and return each file's digest by name."""
    found = _digest_files(folder)
    lines = [f"{value.removeprefix('sha256:')}  {name}\n" for name, value in sorted(found.items())]
    files.write_atomically(folder / SUMS, "".join(lines))
    return found


def check_sums(folder: Path) -> dict[str, str]:
    """Check every file of a folder against its checksums, and return each file's digest by name.

    Raises:
        IntegrityError: the checksums are missing, or files are missing, changed, unlisted or not regular files.
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
    """Check one file against the checksums beside it, if any. A file that neither exists nor is listed passes.

    Raises:
        IntegrityError: the file is changed, missing or unlisted, or the checksums cannot be read.
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
    """Return whether a path is a regular file. A link is not: its target may change later."""
    return path.is_file() and not path.is_symlink()


def _complain(folder: Path, why: str) -> IntegrityError:
    return IntegrityError(f"{folder.name} has changed since it was made", why=why, remedy="build the wheel again")


@dataclass(frozen=True, kw_only=True)
class Staging:
    """A folder in which one build works."""

    path: Path  # the folder
    lock: int  # descriptor of its lock; a child that inherits it holds the lock until the child ends


@contextmanager
def stage(dist: Path, name: str) -> Iterator[Staging]:
    """Make a hidden folder for one build, and remove it at the end unless it was moved.

    The kernel releases the folder's lock when this process and all children that inherited it have ended. A folder
    without a lock is abandoned, and the next build or ``toolkit clean`` removes it. filelock's locks are not inherited.
    """
    sweep(dist)
    with _open(dist) as door:
        _flock(door)  # otherwise the folder would look abandoned before it is locked
        path = Path(tempfile.mkdtemp(prefix=f".{name}.", dir=dist))
        lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        _flock(lock)
    try:
        yield Staging(path=path, lock=lock)
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)
        # At the first sweep, the buildx of a killed build may still have held its lock.
        sweep(dist)


def find_staging(dist: Path) -> list[Path]:
    """Return the staging folders of running and of killed builds."""
    try:
        paths = sorted(dist.iterdir())
    except OSError:
        return []
    return [path for path in paths if _STAGING_NAME.fullmatch(path.name) and path.is_dir() and not path.is_symlink()]


def is_abandoned(path: Path) -> bool:
    """Return whether no process holds a folder's lock; False if that cannot be determined."""
    with suppress(OSError), _open(path.parent) as door, _open(path) as lock:
        fcntl.flock(door, fcntl.LOCK_SH)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


def sweep(dist: Path) -> None:
    """Remove the folders that killed builds left."""
    for path in find_staging(dist):
        if is_abandoned(path):
            # Each build makes a new folder, so no build starts to use this one.
            shutil.rmtree(path, ignore_errors=True)


def _flock(handle: int) -> None:
    # On a file system without locks, is_abandoned() is False, so that nothing is removed.
    with suppress(OSError):
        fcntl.flock(handle, fcntl.LOCK_EX)


@contextmanager
def _open(folder: Path) -> Iterator[int]:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield handle
    finally:
        os.close(handle)
