"""Marks what this user has made, by a key that only this user has, so that a stranger's folder is not taken for it.

The key is a file below ``XDG_DATA_HOME``, outside of what a clone, an archive or another user can bring along. A mark
is no signature: whoever can read the key can make it, and nobody else can check it.
"""

import hashlib
import hmac
import json
import os
import pwd
import secrets
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

from toolkit.base.errors import PreflightError

_BYTES: Final = 32


def find_key() -> Path:
    home = os.environ.get("XDG_DATA_HOME")
    # Like other programs, this one ignores a relative folder: https://specifications.freedesktop.org/basedir
    folder = Path(home) if home and Path(home).is_absolute() else Path("~/.local/share").expanduser()
    return folder / "tensorflow-toolkit" / "key"


def make_key() -> None:
    """Make the key of this user if there is none. Raises PreflightError if it cannot be kept, or is not private."""
    path = find_key()
    if _read_key() is not None:
        return
    temporary = path.with_name(f".{secrets.token_hex(8)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as stream:
            stream.write(secrets.token_bytes(_BYTES))
            stream.flush()
            os.fsync(stream.fileno())
        _place(temporary, path)
    except OSError as error:
        raise PreflightError(
            f"cannot keep the key of this user in {path.parent}",
            why=f"{error.strerror or error}; by this key a later command knows what you have made",
            remedy="set XDG_DATA_HOME to a folder of yours that can be written",
        ) from error
    finally:
        with suppress(OSError):
            temporary.unlink()
    _read_key()  # it raises an error where a file system keeps no file private


def _place(temporary: Path, path: Path) -> None:
    """Give a file its name, unless another command has made one of that name meanwhile."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        return
    except OSError:  # some file systems have no links
        temporary.replace(path)


def mark(purpose: str, value: object) -> str:
    """Return the mark of this user for a JSON value. Raises PreflightError if there is no key."""
    key = _read_key()
    if key is None:
        raise PreflightError(f"there is no key in {find_key()}", remedy="the next command makes one")
    return _compute(key, purpose, value)


def holds(purpose: str, value: object, seal: object) -> bool:
    """Return whether a mark is that of this user. Raises PreflightError if others can read the key."""
    key = _read_key()
    return key is not None and isinstance(seal, str) and hmac.compare_digest(_compute(key, purpose, value), seal)


def require_own(folder: Path) -> None:
    """Raise PreflightError unless only this user and root can change what a folder holds, or it does not exist."""
    if why := find_stranger(folder):
        raise PreflightError(
            f"programs in {folder} are not run",
            why=why,
            remedy=f"make sure that all in it is yours, then `chmod go-w {folder}`, or set TOOLKIT_STATE to a folder "
            "of your own; under sudo, run the command without it",
        )


def find_stranger(path: Path) -> str:
    """Say who else can change a file, or what a folder holds; empty if nobody can, or it does not exist."""
    try:
        link, status = path.lstat(), path.stat()
    except OSError:
        return ""
    for owner in (link.st_uid, status.st_uid):
        if owner not in {os.geteuid(), 0}:
            return f"{path} belongs to {_name(owner)}, and this command runs as {_name(os.geteuid())}"
    # The group of the same number as the user has no other members, where each user has a group of their own.
    if status.st_mode & stat.S_IWOTH or (status.st_mode & stat.S_IWGRP and status.st_gid not in {os.getegid(), 0}):
        return f"other users may write to {path}: its mode is {stat.S_IMODE(status.st_mode):o}"
    return ""


def _name(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return f"user {user}"


def _compute(key: bytes, purpose: str, value: object) -> str:
    text = json.dumps([purpose, value], sort_keys=True, separators=(",", ":"))
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def _read_key() -> bytes | None:
    """Return the key, or None if there is none. Raises PreflightError if it is not private, or damaged."""
    path = find_key()
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise _refuse(path, error.strerror or str(error)) from error
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise _refuse(path, "it is no regular file")
        if status.st_uid != os.geteuid():
            raise _refuse(path, f"it belongs to {_name(status.st_uid)}, and this command runs as {_name(os.geteuid())}")
        if status.st_mode & 0o077:
            raise _refuse(path, f"other users may read it: its mode is {stat.S_IMODE(status.st_mode):o}")
        key = os.read(handle, _BYTES + 1)
    finally:
        os.close(handle)
    if len(key) != _BYTES:
        raise _refuse(path, f"it has {len(key)} bytes, not {_BYTES}")
    return key


def _refuse(path: Path, why: str) -> PreflightError:
    return PreflightError(
        f"the key {path} cannot be used",
        why=why,
        remedy="remove it, or set XDG_DATA_HOME to a folder of yours; environments are then made anew",
    )
