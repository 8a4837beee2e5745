"""Computes content digests, written ``sha256:<64 hex digits>`` as OCI does.

Inside :func:`caching`, :func:`digest_file` caches digests of large files by path, size, times and inode. Only a
cache that this user has written is read.
`toolkit verify` does not use this cache, but hashes a large file once.
"""

import errno
import hashlib
import json
import os
import re
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from toolkit.base import files, seals
from toolkit.base.errors import IntegrityError, PreflightError
from train.system.files import LARGEST_STATE, require_size

SHORT = 12
REMEMBERED = Path("toolkit-cache", "digests.json")
"""The cache file, below the state folder."""

_PURPOSE: Final = "cached digests"
_LARGE: Final = 1 << 20
"""Smaller files are not cached, because reading them is as fast as the look-up."""

_CLOCK_NS: Final = 2 * 10**9
"""A file that changed more recently is not cached: a coarse clock may not show its next change."""


@dataclass
class _Memory:
    root: Path  # files are named from there, so that the cache of a moved clone holds
    known: dict[str, Any] = field(default_factory=dict)
    added: dict[str, Any] = field(default_factory=dict)

    def add(self, name: str, entry: dict[str, Any]) -> None:
        self.known[name] = self.added[name] = entry


_active: list[_Memory] = []
_read: dict[tuple[int, ...], str] = {}
"""Digests of large files that this process has hashed, by what :func:`_identify` returns."""


@contextmanager
def caching(state: Path, *, keep: bool = True) -> Iterator[None]:
    """Cache digests in the block and, if the state folder exists, for later processes. A bad cache is ignored.

    ``keep``: whether new ones are written for later processes.
    """
    path = state / REMEMBERED
    memory = _Memory(Path(os.path.realpath(state)), known=_recall_all(path))
    _active.append(memory)
    try:
        yield
    finally:
        _active.remove(memory)
        if keep and memory.added and state.is_dir():
            with suppress(PreflightError, OSError):
                path.parent.mkdir(exist_ok=True)
                seals.make_key()
                with files.changing(path):  # other commands add to it too
                    known = _recall_all(path) | memory.added
                    files.write_json(path, {"known": known, "mark": seals.mark(_PURPOSE, known)})


def _recall_all(path: Path) -> dict[str, Any]:
    """Return what this user's earlier processes have cached; what somebody else put there says nothing."""
    with suppress(PreflightError):
        match files.read_json(path):
            case {"known": {**known}, "mark": mark} if seals.holds(_PURPOSE, known, mark):
                return {str(name): value for name, value in known.items()}
    return {}


def digest_bytes(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


def digest_file(path: Path) -> str:
    before = path.stat()
    if not _active or before.st_size < _LARGE:
        return read_file(path)
    memory, name = _active[-1], f"file:{os.path.relpath(path.resolve(), _active[-1].root)}"
    identity = _identify(before)
    known = memory.known.get(name)
    if isinstance(known, dict) and known.get("identity") == identity and is_digest(known.get("digest")):
        return str(known["digest"])
    value = read_file(path)
    if _is_settled(path, before):
        memory.add(name, {"identity": identity, "digest": value})
    return value


def cached(key: str, make: Callable[[], Any]) -> Any:
    """Return the JSON value that ``make`` returns; it is cached by the key, which names all that it depends on."""
    if not _active:
        return make()
    memory, name = _active[-1], f"value:{key}"
    match memory.known.get(name):
        case {"value": value, "digest": found} if found == digest_value(value):
            return value
    # In the form in which it would be read back, with lists for tuples.
    value = json.loads(json.dumps(make()))
    memory.add(name, {"value": value, "digest": digest_value(value)})
    return value


def digest_value(value: object) -> str:
    """Return the digest of a JSON value, which does not depend on the order of keys."""
    return digest_bytes(json.dumps(value, sort_keys=True, separators=(",", ":")).encode())


def digest_paths(root: Path, paths: Iterable[Path]) -> str:
    """Return the digest of files and folders: names below ``root``, executable bits and bytes; not ``__pycache__``."""
    listed = sorted(
        file for path in paths for file in ([path] if path.is_file() else path.rglob("*")) if file.is_file()
    )
    return digest_value(
        [
            (file.relative_to(root).as_posix(), bool(file.stat().st_mode & 0o100), digest_file(file))
            for file in listed
            if "__pycache__" not in file.parts
        ]
    )


def shorten(digest: str) -> str:
    return digest.removeprefix("sha256:")[:SHORT]


def read_file(path: Path) -> str:
    """Return the digest of the bytes that a file has, read by this process, whatever is cached on disk."""
    before = path.stat()
    identity = tuple(_identify(before))
    value = _read.get(identity) or f"sha256:{hash_file(path).hex()}"
    if before.st_size >= _LARGE and _is_settled(path, before):
        _read[identity] = value
    return value


def read_files(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """Return the digests of files, read anew. Raises IntegrityError if one is missing, a link, or elsewhere."""
    root, digests = folder.resolve(), {}
    for name in names:
        path = root / name
        if not path.is_file() or path.resolve() != path or not path.is_relative_to(root):
            raise IntegrityError(f"{name} is no regular file in {folder}", remedy="a link is not signed: copy the file")
        try:
            require_size(path)
        except OSError as error:
            raise IntegrityError(f"{name} is not what the record of {folder} says: {error.strerror}") from error
        digests[name] = read_file(path)
    return digests


def hash_file(path: Path | str, limit: int = LARGEST_STATE) -> bytes:
    """Return the SHA-256 of a file. Raises OSError unless it is a regular file of at most so many bytes.

    Environments have tens of thousands of small ones. A file with holes may have any size and take no disk.
    """
    # A Path takes as long as the hashing of a small file. A pipe would wait for a writer.
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(handle, "rb", buffering=0) as stream:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", str(path))
        if status.st_size > limit:
            raise OSError(errno.EFBIG, f"it has {status.st_size:,} bytes, and may have {limit:,}", str(path))
        if status.st_size < _LARGE:
            return hashlib.sha256(stream.read()).digest()
        return hashlib.file_digest(stream, "sha256").digest()


def _is_settled(path: Path, before: os.stat_result) -> bool:
    """Return whether a file is as before, and cannot change again without a new time stamp."""
    same = _identify(path.stat()) == _identify(before)
    return same and time.time_ns() - max(before.st_mtime_ns, before.st_ctime_ns) > _CLOCK_NS


def _identify(status: os.stat_result) -> list[int]:
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_dev]


def is_digest(value: object) -> bool:
    return isinstance(value, str) and re.fullmatch("sha256:[0-9a-f]{64}", value) is not None
