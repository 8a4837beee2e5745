"""Writes files and folders completely or not at all; a folder gets a hidden, locked name until it is complete."""

import ctypes
import errno
import fcntl
import json
import os
import re
import secrets
import shutil
import stat
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, BinaryIO

from toolkit.base.errors import PreflightError
from train.system import signals
from train.system.files import read_regular

_RENAME_EXCHANGE = 2
_HERE = -100  # AT_FDCWD
_UNABLE = {errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP}
"""What a kernel or a file system says that cannot exchange two names."""

_STAGING_NAME = re.compile(r"\.[0-9a-f]{12}\.[a-z0-9_]{8}")
"""A shortened digest and the suffix of ``mkdtemp``; hidden folders of other names are left alone."""


def write_atomically(path: Path, data: str | bytes) -> None:
    """Write a file completely or not at all. Raises PreflightError if the folder is read-only, or the disk is full."""
    content = data.encode() if isinstance(data, str) else data
    temporary = f".{path.name}.{secrets.token_hex(4)}"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _open(path.parent) as folder:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            try:
                with os.fdopen(os.open(temporary, flags, 0o600, dir_fd=folder), "wb") as stream:
                    stream.write(content)
                    stream.flush()
                    set_mode(stream.fileno(), 0o644)
                    _give(stream.fileno(), folder)
                    os.fsync(stream.fileno())
                os.replace(temporary, path.name, src_dir_fd=folder, dst_dir_fd=folder)
            except OSError:
                with suppress(OSError):
                    os.unlink(temporary, dir_fd=folder)
                raise
    except OSError as error:
        raise PreflightError(
            f"cannot write {path}", why=error.strerror or str(error), remedy="free space or choose another folder"
        ) from error


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Raise PreflightError if what is done inside cannot be written: the folder is read-only, or the disk is full."""
    try:
        yield
    except OSError as error:
        raise PreflightError(
            f"cannot write {path}", why=error.strerror or str(error), remedy="free space or choose another folder"
        ) from error


def exchange(one: Path, other: Path) -> bool:
    """Exchange two names in one step; return whether it is possible here. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "renameat2"):
        return False
    if libc.renameat2(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _RENAME_EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in _UNABLE:
        return False
    raise OSError(number, os.strerror(number), str(one))


def take_place(new: Path, old: Path, aside: Path) -> None:
    """Put a folder in the place of another one: in one step, or in two where the file system cannot do that.

    The old one is then at ``new`` or ``aside``. Raises OSError, and nothing has changed.
    """
    if not old.exists():
        new.rename(old)
    elif not exchange(new, old):
        old.rename(aside)
        try:
            new.rename(old)
        except OSError:
            aside.rename(old)
            raise


def set_mode(file: Path | int, mode: int) -> None:
    """Set the mode of a file or descriptor. A file system without modes, as on a USB stick, keeps its own.

    Raises OSError if the file is a link.
    """
    if isinstance(file, int):
        with suppress(PermissionError):
            os.fchmod(file, mode)
        return
    handle = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        set_mode(handle, mode)
    finally:
        os.close(handle)


def lock_file(stream: IO[Any], how: int) -> None:
    """Lock an open file. Raises BlockingIOError if it is held, PreflightError if its file system has no locks."""
    try:
        fcntl.flock(stream, how)
    except BlockingIOError:
        raise
    except OSError as error:
        raise PreflightError(
            f"cannot lock {stream.name}",
            why=error.strerror or str(error),
            remedy="choose a folder on a file system with locks: TOOLKIT_STATE and --out name them",
        ) from error


def _open_plain(path: str, flags: int) -> int:
    """Open a regular file. A named pipe would wait, and a link could lead to one."""
    if not stat.S_ISREG(os.lstat(path).st_mode):
        raise FileNotFoundError(errno.ENOENT, "it is no regular file", path)
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOFOLLOW)


def is_locked(path: Path) -> bool:
    """Return whether a process holds the lock of a file, alone or shared; not if the file is missing or no plain one.

    Raises PreflightError if its file system has no locks.
    """
    with suppress(FileNotFoundError), open(path, opener=_open_plain) as stream:
        try:
            lock_file(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


@contextmanager
def changing(path: Path) -> Iterator[None]:
    """Hold a lock while a file is read, changed and replaced, so that no command loses the change of another one.

    The lock is that of the file's folder, because the file itself is replaced. A file system without locks has none.
    """
    with _open(path.parent) as folder:
        _flock(folder)
        yield


def write_json(path: Path, value: object) -> None:
    write_atomically(path, json.dumps(value, indent=2, sort_keys=True) + "\n")


def read_json(path: Path) -> object | None:
    """Return the JSON value in a record or cache. None means missing or unreadable: it is then made again."""
    try:
        value: object = json.loads(read_regular(path)) if path.is_file() else None
    except (OSError, ValueError, RecursionError):
        return None
    return value


def parse_yaml(text: str | bytes) -> object:
    """Return the value of a YAML document in which no key stands twice: readers of YAML keep the last one.

    Raises ValueError if it cannot be read.
    """
    import yaml  # takes a tenth of the time of `toolkit --help`

    def read_mapping(loader: Any, node: Any) -> dict[Any, Any]:
        if any(name.tag == "tag:yaml.org,2002:merge" for name, _ in node.value):
            raise ValueError("it merges mappings by <<, which is not read: write the keys out")
        names = [loader.construct_object(name) for name, _ in node.value]
        if twice := [name for name in names if names.count(name) > 1]:
            raise ValueError(f"it has a key twice: {twice[0]}")
        return dict(zip(names, (loader.construct_object(value, deep=True) for _, value in node.value), strict=True))

    class Loader(yaml.SafeLoader):
        """Refuses a key that stands twice."""

    Loader.add_constructor("tag:yaml.org,2002:map", read_mapping)
    try:
        return yaml.load(text, Loader)  # noqa: S506 (it is a safe one)
    except (yaml.YAMLError, UnicodeDecodeError, TypeError, RecursionError) as error:
        raise ValueError(str(error) or type(error).__name__) from error


def open_own(path: Path) -> BinaryIO:
    """Open a file to read and change it; a missing one is made. Raises PreflightError if it is a link or read-only."""
    try:
        return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644), "r+b")
    except OSError as error:
        raise PreflightError(
            f"cannot write {path}",
            why="it is a link, which this program did not make" if path.is_symlink() else error.strerror or str(error),
            remedy="look at it and remove it" if path.is_symlink() else "choose another folder, or change its owner",
        ) from error


def find_missing(folder: Path) -> list[Path]:
    """Return the folders that must be made for a folder to exist, the outermost first."""
    return [path for path in [*reversed(folder.parents), folder] if not path.exists()]


def require_writable(folder: Path) -> None:
    """Make a folder and check that a file can be written in it. Raises PreflightError if that fails.

    What root makes belongs to the owner of the folder around it.
    """
    try:
        for path in find_missing(folder):
            make_folder(path)
        folder.mkdir(exist_ok=True)  # it may be a file
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise PreflightError(
            f"cannot write to {folder}",
            why=error.strerror or str(error),
            remedy="choose another folder, or change its owner",
        ) from error


ROOM = "free space, or give a folder on a larger disk with --out"


def require_room(folder: Path, remedy: str = ROOM) -> None:
    """Raise PreflightError if no megabyte can be written in a folder: other programs do not say that a disk is full."""
    try:
        with tempfile.TemporaryFile(dir=folder) as probe:
            os.posix_fallocate(probe.fileno(), 0, 1 << 20)
    except OSError as error:
        raise PreflightError(
            f"the disk of {folder.parent} filled up", why=error.strerror or str(error), remedy=remedy
        ) from error


def make_folder(path: Path, owner: tuple[int, int] | None = None) -> None:
    """Make a folder if it is missing. If root makes it, it belongs to an owner, or to that of the folder around it."""
    with _open(path.parent) as parent:
        try:
            os.mkdir(path.name, dir_fd=parent)
        except FileExistsError:
            return
        handle = os.open(path.name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
        try:
            if not os.listdir(handle):  # noqa: PTH208 - a descriptor; what holds something is not what was just made
                _give(handle, parent, owner)
        finally:
            os.close(handle)


def _give(handle: int, folder: int, owner: tuple[int, int] | None = None) -> None:
    """Give what root has made to an owner, or to that of the folder around it.

    Both are descriptors: by name, a link that is put there meanwhile would lead elsewhere.
    """
    if os.getuid() == 0:
        status = os.fstat(folder)
        with suppress(OSError):  # some file systems of networks do not let root do it
            os.fchown(handle, *(owner or (status.st_uid, status.st_gid)))


def chown_like_parent(top: Path, since: float, names: Collection[str] = ()) -> None:
    """Give what root wrote below a folder since a time to the owners of the folders in which it lies.

    Of the folder itself only the entries of these names count, if any are given.
    """
    if os.getuid():
        return
    # By handles of folders, so that no link that is put there meanwhile leads elsewhere.
    for path, folders, others, handle in os.fwalk(top):
        if names and path == str(top):
            for entries in (folders, others):
                entries[:] = [name for name in entries if name in names]
        owner = os.fstat(handle)
        for name in (*folders, *others):
            with suppress(FileNotFoundError):  # a job may remove its files at any moment
                state = os.stat(name, dir_fd=handle, follow_symlinks=False)
                # A file with a second name may be one of root's, to which the owner of the folder has made a hard link.
                other_name = state.st_nlink > 1 and not stat.S_ISDIR(state.st_mode)
                if state.st_uid == 0 != owner.st_uid and state.st_ctime >= since and not other_name:
                    os.chown(name, owner.st_uid, owner.st_gid, dir_fd=handle, follow_symlinks=False)


def measure(folder: str | Path) -> int:
    """Return the bytes of the files in a folder and below. What cannot be read counts nothing."""
    size, left = 0, [os.fspath(folder)]
    while left:
        with suppress(OSError), os.scandir(left.pop()) as entries:
            for entry in entries:
                with suppress(OSError):
                    if entry.is_dir(follow_symlinks=False):
                        left.append(entry.path)
                    else:
                        size += entry.stat(follow_symlinks=False).st_size
    return size


def format_size(size: int | None) -> str:
    """Return bytes as people read them; nothing for an unknown size."""
    if size is None:
        return ""
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.1f} MB"


@dataclass(frozen=True, kw_only=True)
class Staging:
    path: Path  # the folder
    lock: int  # descriptor of its lock; a child that inherits it holds the lock until the child ends


@contextmanager
def stage(parent: Path, name: str) -> Iterator[Staging]:
    """Make a hidden, locked folder for one command, and remove it at the end unless it was moved.

    The kernel releases the lock when this process and all children that inherited it have ended; filelock's locks are
    not inherited. The next command of its kind or ``toolkit clean`` removes an unlocked folder.
    """
    sweep(parent)
    made: list[Staging] = []
    try:
        with signals.deferring():  # an interrupt in between would leave the folder
            made.append(_make_staging(parent, name))
        yield made[0]
    finally:
        with signals.deferring():
            for staging in made:
                shutil.rmtree(staging.path, ignore_errors=True)
                os.close(staging.lock)
            # At the first sweep, a child of a killed command may still have held its lock.
            sweep(parent)


def _make_staging(parent: Path, name: str) -> Staging:
    with _open(parent) as door:
        _flock(door)  # otherwise the folder would look abandoned before it is locked
        path = Path(tempfile.mkdtemp(prefix=f".{name}.", dir=parent))
        lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        _flock(lock)
    return Staging(path=path, lock=lock)


def find_staging(parent: Path) -> list[Path]:
    try:
        paths = sorted(parent.iterdir())
    except OSError:
        return []
    return [path for path in paths if _STAGING_NAME.fullmatch(path.name) and path.is_dir() and not path.is_symlink()]


def is_abandoned(path: Path) -> bool:
    with suppress(OSError), _open(path.parent) as door, _open(path) as lock:
        fcntl.flock(door, fcntl.LOCK_SH)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


def sweep(parent: Path) -> None:
    for path in find_staging(parent):
        if is_abandoned(path):
            # Each command makes a new folder, so none starts to use this one.
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
