"""Computes content digests, written ``sha256:<64 hex digits>`` as OCI does.

Inside :func:`remembering`, :func:`digest_file` caches digests of large files by path, size, times and inode.
`toolkit verify` does not use this cache.
"""

import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from toolkit import files
from toolkit.errors import PreflightError

SHORT = 12
REMEMBERED = Path("toolkit-cache", "digests.json")
"""The cache file, below the state folder."""

_LARGE: Final = 1 << 20
"""Smaller files are not cached, because reading them is as fast as the look-up."""

_CLOCK_NS: Final = 2 * 10**9
"""A file that changed more recently is not cached: a coarse clock may not show its next change."""


@dataclass
class _Memory:
    known: dict[str, Any] = field(default_factory=dict)
    changed: bool = False


_active: list[_Memory] = []


@contextmanager
def remembering(state: Path) -> Iterator[None]:
    """Cache digests in the block and, if the state folder exists, for later processes. A bad cache is ignored."""
    path = state / REMEMBERED
    value = files.read_json(path)
    memory = _Memory(known=dict(value) if isinstance(value, dict) else {})
    _active.append(memory)
    try:
        yield
    finally:
        _active.remove(memory)
        if memory.changed and state.is_dir():
            with suppress(PreflightError):
                files.write_json(path, memory.known)


def digest_bytes(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


def digest_file(path: Path) -> str:
    before = path.stat()
    if not _active or before.st_size < _LARGE:
        return read_file(path)
    memory, name = _active[-1], f"file:{path.resolve()}"
    identity = _identify(before)
    known = memory.known.get(name)
    if isinstance(known, dict) and known.get("identity") == identity and is_digest(known.get("digest")):
        return str(known["digest"])
    found = read_file(path)
    # A file that was changed a moment ago may change again without a new time stamp.
    if _identify(path.stat()) == identity and time.time_ns() - before.st_mtime_ns > _CLOCK_NS:
        memory.known[name] = {"identity": identity, "digest": found}
        memory.changed = True
    return found


def recall(key: str, make: Callable[[], Any]) -> Any:
    """Return the JSON value that ``make`` returns; it is cached by the key, which names all that it depends on."""
    if not _active:
        return make()
    memory, name = _active[-1], f"value:{key}"
    match memory.known.get(name):
        case {"value": value, "digest": found} if found == digest_value(value):
            return value
    # In the form in which it would be read back, with lists for tuples.
    value = json.loads(json.dumps(make()))
    memory.known[name] = {"value": value, "digest": digest_value(value)}
    memory.changed = True
    return value


def digest_value(value: object) -> str:
    """Return the digest of a JSON value, which does not depend on the order of keys."""
    return digest_bytes(json.dumps(value, sort_keys=True, separators=(",", ":")).encode())


def digest_paths(root: Path, paths: Iterable[Path]) -> str:
    """Return the digest of files and folders: names below ``root``, executable bits and bytes; not ``__pycache__``."""
    found = sorted(file for path in paths for file in ([path] if path.is_file() else path.rglob("*")) if file.is_file())
    return digest_value(
        [
            (file.relative_to(root).as_posix(), bool(file.stat().st_mode & 0o100), digest_file(file))
            for file in found
            if "__pycache__" not in file.parts
        ]
    )


def shorten(digest: str) -> str:
    return digest.removeprefix("sha256:")[:SHORT]


def read_file(path: Path) -> str:
    """Return the digest of the bytes that a file has now, whatever is cached."""
    with path.open("rb") as stream:
        return "sha256:" + hashlib.file_digest(stream, "sha256").hexdigest()


def _identify(found: os.stat_result) -> list[int]:
    return [found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino, found.st_dev]


def is_digest(value: object) -> bool:
    return isinstance(value, str) and re.fullmatch("sha256:[0-9a-f]{64}", value) is not None
