"""Content digests: the names by which artifacts know each other.

Every digest is written ``sha256:<64 hex digits>``, as OCI does.
"""

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

SHORT = 12


def digest_bytes(data: bytes) -> str:
    """Digest of bytes."""
    return "sha256:" + hashlib.sha256(data).hexdigest()


def digest_file(path: Path) -> str:
    """Digest of a file's bytes, read in pieces."""
    with path.open("rb") as stream:
        return "sha256:" + hashlib.file_digest(stream, "sha256").hexdigest()


def digest_value(value: object) -> str:
    """Digest of a JSON-like value, independent of the order of keys."""
    return digest_bytes(json.dumps(value, sort_keys=True, separators=(",", ":")).encode())


def digest_paths(root: Path, paths: Iterable[Path]) -> str:
    """Digest of files and folders below ``root``: names, executable bits and bytes, in a fixed order.

    Python's compiled files are left out: they are made by reading, not by writing.
    """
    files = sorted(file for path in paths for file in ([path] if path.is_file() else path.rglob("*")) if file.is_file())
    return digest_value(
        [
            (file.relative_to(root).as_posix(), bool(file.stat().st_mode & 0o100), digest_file(file))
            for file in files
            if "__pycache__" not in file.parts
        ]
    )


def shorten(digest: str) -> str:
    """The first digits, for names of folders and tags."""
    return digest.removeprefix("sha256:")[:SHORT]
