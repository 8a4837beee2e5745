import contextlib
import os
import shutil
import stat
import tempfile
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import BinaryIO, Final

from train.errors import DataError, PreflightError, TooLargeError, explain_unreadable

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
        _require_regular(path.stat(), name)  # the mere opening of a device can do something
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            state = os.fstat(descriptor)
            _require_regular(state, name)
            if state.st_size > most:
                raise TooLargeError(
                    f"cannot read {name}",
                    why=f"its {state.st_size:,} bytes are more than the {most:,} that a file may have here",
                    remedy="make it smaller, or remove it",
                )
            return file.read(state.st_size + 1) or b""
    except OSError as error:
        raise explain_unreadable(path, error) from error
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
        found = {entry.name for entry in path.iterdir()} if path.exists() else set()
        if found - set(names):
            raise PreflightError(
                f"{path} holds something else: {', '.join(sorted(found - set(names))[:3])}",
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
        if path.is_file():  # a folder belongs to an export, which may be running and cleans up itself
            path.unlink(missing_ok=True)


_UMASK = os.umask(0)
os.umask(_UMASK)
