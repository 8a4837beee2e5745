import contextlib
import errno
import io
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import BinaryIO, Final, TextIO

from train.errors import DataError, PreflightError, TooLargeError, ToolkitError, UsageError, explain_unreadable

LARGEST_TEXT: Final = 64 << 20
"""Bytes that a record, a policy, a key or another text of people or programs may have."""

LARGEST_LINES: Final = 4 << 30
"""Bytes that the measurements of a run may have, with a line for each of its steps."""

LARGEST_STATE: Final = 16 << 30
"""Bytes that a checkpoint may have, and any other file of a record."""


def read_regular(path: Path, limit: int = LARGEST_TEXT) -> bytes:
    """Return the bytes of a regular file that is not trusted.

    Raises OSError if the file is missing, is a pipe or a device, which might never end, or is larger than the limit.
    """
    with _open_regular(path, limit) as file:
        try:
            content = file.read(limit + 1)
        except MemoryError as error:
            raise OSError(errno.ENOMEM, "it has more bytes than there is memory", str(path)) from error
    if len(content) > limit:
        raise _refuse_size(path, len(content), limit)
    return content


def read_start(path: Path, count: int) -> bytes:
    """Return the first bytes of a regular file of any size. Raises OSError as `read_regular`."""
    with _open_regular(path, sys.maxsize) as file:
        return file.read(count)


def read_text(path: Path, limit: int = LARGEST_TEXT) -> str:
    """Return the text of a regular file in UTF-8. Raises OSError as `read_regular`, and ValueError for no UTF-8."""
    return read_regular(path, limit).decode("utf-8")


def read_list(stream: TextIO) -> list[str]:
    """Return the names in a list of files, one a line, or separated by NUL as ``find -print0`` writes them."""
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="surrogateescape")  # a name need not be text
    text = stream.read()
    names = text.split("\0") if "\0" in text else [line.rstrip("\r") for line in text.split("\n")]
    return [name for name in names if name]


def require_size(path: Path, limit: int = LARGEST_STATE) -> None:
    """Raise OSError unless a path is a regular file of at most so many bytes."""
    _open_regular(path, limit).close()


def _open_regular(path: Path, limit: int) -> BinaryIO:
    # Opened without waiting, because a pipe would wait for a writer.
    file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC), "rb")
    status = os.fstat(file.fileno())
    if stat.S_ISREG(status.st_mode) and status.st_size <= limit:
        return file
    file.close()
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "it is no regular file", str(path))
    raise _refuse_size(path, status.st_size, limit)


def _refuse_size(path: Path, size: int, limit: int) -> OSError:
    return OSError(errno.EFBIG, f"it has {size:,} bytes, and may have {limit:,}", str(path))


_KINDS: Final = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
    stat.S_IFDIR: "a folder",
}


def read_file(path: Path, most: int, name: str = "") -> bytes:
    """Return the content of a regular file. Raises a DataError for anything else, which could wait or never end.

    A TooLargeError is for a file of more than `most` bytes. `name` names the file in messages.
    """
    name = name or str(path)
    try:
        _require_regular(path.stat(), name)  # opening a device can already have an effect
        return read_regular(path, most)
    except OSError as error:
        if error.errno == errno.EFBIG:
            raise TooLargeError(
                f"cannot read {name}", why=error.strerror or "", remedy="make it smaller, or remove it"
            ) from error
        raise explain_unreadable(path, error, name) from error
    except ValueError as error:  # a name with a null byte, or one that is no text
        raise DataError(f"cannot read {name!r}", why=f"no file can have this name: {error}") from error


def _require_regular(state: os.stat_result, name: str) -> None:
    kind = stat.S_IFMT(state.st_mode)
    if kind != stat.S_IFREG:
        raise DataError(
            f"cannot read {name}",
            why=f"it is {_KINDS.get(kind, 'no regular file')}, not a file with content",
            remedy="give a file, or remove it",
        )


_USAGE: Final = {
    *(errno.ENAMETOOLONG, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENOENT, errno.EEXIST),
    *(errno.EINVAL, errno.EFBIG),  # no regular file, or too large a one
}
_MACHINE: Final = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT}


def explain_path(error: OSError | ValueError) -> ToolkitError | None:
    """Return the error of a path that cannot be used; None if the error is about something else."""
    if isinstance(error, ValueError):
        nul = "embedded null" in str(error)
        return UsageError("a path has a NUL character in it", remedy="give another path") if nul else None
    if error.errno in {errno.EMFILE, errno.ENFILE}:
        remedy = "raise the limit: ulimit -n 1024"
        return PreflightError("too many files are open", why=error.strerror or "", remedy=remedy)
    if not isinstance(error.filename, str | bytes):
        return None
    name = os.fsdecode(error.filename)
    message = f"cannot use {name if len(name) <= 300 else f'{name[:100]}…, a name of {len(name):,} letters'}"
    if error.errno in _USAGE:
        return UsageError(message, why=error.strerror or "", remedy="give another path")
    if error.errno in _MACHINE:
        return PreflightError(message, why=error.strerror or "", remedy="choose another folder, or change its rights")
    return None


@contextlib.contextmanager
def writing(path: Path, *errors: type[Exception]) -> Iterator[None]:
    """Turn an OSError, or one of `errors`, while writing to `path` into a PreflightError that explains it."""
    kinds: tuple[type[Exception], ...] = (OSError, *errors)
    try:
        yield
    except kinds as error:
        reason = str(error).partition("\n")[0].rpartition("; ")[2]  # TensorFlow names its own source files first
        raise PreflightError(
            f"cannot write {path}",
            why=getattr(error, "strerror", None) or reason,
            remedy="free some space, or choose another folder with --out; what was there before is untouched",
        ) from error


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    temporary = ""
    try:
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
            with os.fdopen(descriptor, "wb") as file:
                with contextlib.suppress(PermissionError):  # a file system without modes keeps its own
                    os.fchmod(descriptor, 0o666 & ~_UMASK)
                yield file
                file.flush()
                os.fsync(descriptor)
            Path(temporary).replace(path)
    finally:
        if temporary:
            Path(temporary).unlink(missing_ok=True)


@contextlib.contextmanager
def replacing_folder(path: Path, names: Collection[str]) -> Iterator[Path]:
    """Make a folder that replaces `path` if the block succeeds. Raises a PreflightError if it holds other `names`."""
    with writing(path):
        present = {entry.name for entry in path.iterdir()} if path.exists() else set()
        if present - set(names):
            raise PreflightError(
                f"{path} holds something else: {', '.join(sorted(present - set(names))[:3])}",
                remedy="choose a new folder with --out",
            )
        path.parent.mkdir(parents=True, exist_ok=True)
        for left in path.parent.glob(f".{path.name}.????????"):  # left by a killed process
            shutil.rmtree(left, ignore_errors=True)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as parent:
            new = Path(parent) / path.name
            new.mkdir()
            yield new
            if path.exists():
                shutil.rmtree(path)
            new.replace(path)


def write_text(path: Path, text: str) -> None:
    with replacing(path) as file:
        file.write(text.encode())


def sweep(folder: Path) -> None:
    """Remove half-written files of killed processes. Call it only while the folder is locked."""
    for path in folder.glob(".*.????????"):
        if path.is_file():  # a folder is that of an export, which may be running, and cleans up itself
            path.unlink(missing_ok=True)


_UMASK = os.umask(0)
os.umask(_UMASK)
