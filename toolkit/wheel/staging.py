"""Where a wheel is made before it is published: a hidden folder beside the results, locked while somebody works in it.

A process that was killed cannot tidy up, but the kernel drops its locks. So a folder of ours that nobody holds is
abandoned, and the next build, or ``toolkit clean``, removes it.
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

_NAME = re.compile(r"\.[0-9a-f]{12}\.[a-z0-9_]{8}")
"""A plan's name and what ``mkdtemp`` adds to it. Hidden things of another name are somebody else's."""


@dataclass(frozen=True, kw_only=True)
class Staging:
    """A folder that is ours for a while.

    Attributes:
        path: the folder.
        lock: open file that holds its lock. A child that inherits it holds the lock for as long as it lives.
    """

    path: Path
    lock: int


@contextmanager
def claim(dist: Path, name: str) -> Iterator[Staging]:
    """Make a folder for one build; it is gone afterwards unless it was moved. Removes what killed builds left, too."""
    sweep(dist)
    with _open(dist) as door:
        _lock(door)  # a folder that is there and not yet locked would look abandoned to others
        path = Path(tempfile.mkdtemp(prefix=f".{name}.", dir=dist))
        lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        _lock(lock)
    try:
        yield Staging(path=path, lock=lock)
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)
        # Again, because a killed build's buildx may have lived on for some seconds after the first time.
        sweep(dist)


def find(dist: Path) -> list[Path]:
    """Folders in which a wheel is or was made."""
    try:
        paths = sorted(dist.iterdir())
    except OSError:
        return []
    return [path for path in paths if _NAME.fullmatch(path.name) and path.is_dir() and not path.is_symlink()]


def is_abandoned(path: Path) -> bool:
    """Whether no living process holds a folder. What cannot be found out counts as held."""
    with suppress(OSError), _open(path.parent) as door, _open(path) as lock:
        fcntl.flock(door, fcntl.LOCK_SH)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


def sweep(dist: Path) -> None:
    """Remove the folders that killed builds left."""
    for path in find(dist):
        if is_abandoned(path):
            # Nobody takes up an abandoned folder again: each build makes its own.
            shutil.rmtree(path, ignore_errors=True)


def _lock(handle: int) -> None:
    # On a file system without locks nothing can be swept, either.
    with suppress(OSError):
        fcntl.flock(handle, fcntl.LOCK_EX)


@contextmanager
def _open(folder: Path) -> Iterator[int]:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield handle
    finally:
        os.close(handle)
