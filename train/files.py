"""Files appear whole or not at all."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from train.errors import PreflightError


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file that takes the place of `path` when the block ends well, and leaves no trace when it does not.

    Raises:
        PreflightError: the disk is full, or the folder cannot be written.
    """
    temporary = ""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, 0o666 & ~_UMASK)
            yield file
            file.flush()
            os.fsync(descriptor)
        Path(temporary).replace(path)
    except OSError as error:
        raise PreflightError(
            f"cannot write {path}",
            why=error.strerror or str(error),
            remedy="free some space, or choose another folder with --out; what was there before is untouched",
        ) from error
    finally:
        if temporary:
            Path(temporary).unlink(missing_ok=True)


@contextlib.contextmanager
def replacing_folder(path: Path) -> Iterator[Path]:
    """A folder that takes the place of `path` when the block ends well, and leaves no trace when it does not."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as parent:
        new = Path(parent) / path.name
        new.mkdir()
        yield new
        shutil.rmtree(path, ignore_errors=True)
        new.replace(path)


def write_text(path: Path, text: str) -> None:
    """Write a text file in one piece."""
    with replacing(path) as file:
        file.write(text.encode())


def sweep(folder: Path) -> None:
    """Remove what a killed process left half-written. Call it only while the folder is locked."""
    for path in folder.glob(".*.????????"):
        path.unlink(missing_ok=True)


_UMASK = os.umask(0)
os.umask(_UMASK)
