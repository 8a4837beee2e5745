"""Writes files completely or not at all."""

import json
import os
import tempfile
from pathlib import Path

from toolkit.errors import PreflightError


def write_atomically(path: Path, data: str | bytes) -> None:
    """Write a file completely or not at all, through a temporary file beside it.

    Raises:
        PreflightError: the folder cannot be written, or the disk is full; the old file is intact.
    """
    content = data.encode() if isinstance(data, str) else data
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        temporary = Path(name)
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        # mkstemp makes files private, but other users should read these.
        temporary.chmod(0o644)
        temporary.replace(path)
    except OSError as error:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
        raise PreflightError(
            f"cannot write {path}", why=error.strerror or str(error), remedy="free space or choose another folder"
        ) from error


def write_json(path: Path, value: object) -> None:
    """Write a value as indented JSON. Raises what :func:`write_atomically` raises."""
    write_atomically(path, json.dumps(value, indent=2, sort_keys=True) + "\n")


def read_json(path: Path) -> object | None:
    """Return the JSON value in a file, or None if it is missing or unreadable.

    This is for records and caches of the toolkit. An unreadable one counts as missing and is written again.
    """
    try:
        value: object = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return value


def require_writable(folder: Path) -> None:
    """Make a folder and check that a file can be written in it. Raises PreflightError if that fails."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise PreflightError(
            f"cannot write to {folder}",
            why=error.strerror or str(error),
            remedy="choose another folder, or change its owner",
        ) from error
