"""Keeps an append-only log in a folder: entries, the tiles of their Merkle tree, and a signed head.

The layout is that of https://c2sp.org/tlog-tiles, so that other programs can read the folder, also where a web server
offers it. Leaves and nodes are hashed as RFC 6962 does. A head is signed when all that it stands for is written: what a
killed command has left after the head belongs to no tree, and the next command writes over it.
"""

import fcntl
import os
import shutil
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from toolkit import files
from toolkit.errors import IntegrityError, UsageError
from toolkit.keys import Signer
from toolkit.record import head
from toolkit.record.head import Head, Note
from toolkit.signing import Signatory
from train.record.tree import hash_leaf, hash_tree

CHECKPOINT: Final = "checkpoint"
LOCK: Final = "lock"
WIDTH: Final = 256
"""Hashes of a full tile, and entries of a full bundle."""

LARGEST: Final = (1 << 16) - 1
"""Bytes of the largest entry."""

_LENGTH: Final = struct.Struct(">H")


@dataclass(frozen=True, kw_only=True)
class Log:
    folder: Path
    note: Note
    entries: tuple[bytes, ...]
    leaves: tuple[bytes, ...]  # the hash of each entry

    @property
    def head(self) -> Head:
        return self.note.head


def create(folder: Path, origin: str, signer: Signer) -> Log:
    """Make an empty log with a signed head. Raises UsageError: there is one, or the name or the key is of no use."""
    head.require_name(origin)
    note = head.sign(Head(origin=origin, size=0, root=hash_tree(())), signer)
    files.require_writable(folder)
    with _locking(folder, "r+b", fcntl.LOCK_EX):
        if (folder / CHECKPOINT).exists():
            raise UsageError(f"{folder} has a log", why="a log is never begun anew", remedy="choose another folder")
        files.write_atomically(folder / CHECKPOINT, note.encode())
    return Log(folder=folder, note=note, entries=(), leaves=())


def append(folder: Path, entries: Sequence[bytes], signer: Signer) -> tuple[Log, int]:
    """Add the entries that a log lacks; return it, and how many these were. A second command waits for the first.

    Raises IntegrityError: the log does not hold, or its head is not of this key; UsageError: there is none, or an entry
    is too long; PreflightError: the folder cannot be written.
    """
    own = Signatory(name="the given key", key=signer.public_key, may=("log",))
    _require_log(folder)
    with _locking(folder, "r+b", fcntl.LOCK_EX):
        log = _read_log(folder)
        head.require_signer(log.note, [own])
        known = set(log.entries)
        added = [entry for entry in dict.fromkeys(entries) if entry not in known]
        if not added:
            return log, 0
        if any(not 0 < len(entry) <= LARGEST for entry in added):
            raise UsageError(f"an entry has no bytes, or more than {LARGEST}")
        every = (*log.entries, *added)
        leaves = (*log.leaves, *map(hash_leaf, added))
        written = dict(_list_files(log.entries, log.leaves))
        for name, content in _list_files(every, leaves):
            if written.get(name) != content:
                files.write_atomically(folder / name, content)
        _flush(folder)
        note = head.sign(Head(origin=log.head.origin, size=len(every), root=hash_tree(leaves)), signer)
        files.write_atomically(folder / CHECKPOINT, note.encode())
        _flush(folder)
        _sweep(folder, len(log.entries), len(every))
    return Log(folder=folder, note=note, entries=every, leaves=leaves), len(added)


def read(folder: Path) -> Log:
    """Read a log, and compare every byte of entries and tiles with its head, whoever signed that.

    Raises IntegrityError: something is missing or does not fit; UsageError: there is no log.
    """
    _require_log(folder)
    # A published copy has no lock, and nothing is written there.
    with _locking(folder, "rb", fcntl.LOCK_SH) if (folder / LOCK).is_file() else nullcontext():
        return _read_log(folder)


def _read_log(folder: Path) -> Log:
    note = head.parse(_read(folder / CHECKPOINT, head.LARGEST))
    entries = tuple(_read_entries(folder, note.head.size))
    leaves = tuple(map(hash_leaf, entries))
    for name, content in _list_files((), leaves):
        path, cut = _find_tile(folder, name)
        found = _read(path, WIDTH * len(note.head.root))
        if (found[: len(content)] if cut else found) != content:
            raise IntegrityError(f"{name} of the log does not have the hashes of its entries")
    if hash_tree(leaves) != note.head.root:
        raise IntegrityError("the entries of the log are not those of its head")
    return Log(folder=folder, note=note, entries=entries, leaves=leaves)


def _require_log(folder: Path) -> None:
    if not (folder / CHECKPOINT).exists():
        raise UsageError(
            f"{folder} has no log", why=f"there is no {CHECKPOINT}", remedy="`toolkit log new` makes one, once"
        )


@contextmanager
def _locking(folder: Path, mode: str, how: int) -> Iterator[None]:
    with files.open_own(folder / LOCK) if mode == "r+b" else (folder / LOCK).open(mode) as stream:
        files.lock_file(stream, how)
        yield


def _list_files(entries: Sequence[bytes], leaves: Sequence[bytes]) -> Iterator[tuple[str, bytes]]:
    """Yield the names and contents of all bundles and tiles of a tree."""
    for number, start in enumerate(range(0, len(entries), WIDTH)):
        part = entries[start : start + WIDTH]
        yield _name("entries", number, len(part)), b"".join(_LENGTH.pack(len(entry)) + entry for entry in part)
    level, hashes = 0, leaves
    while hashes:
        parts = [hashes[start : start + WIDTH] for start in range(0, len(hashes), WIDTH)]
        for number, part in enumerate(parts):
            yield _name(level, number, len(part)), b"".join(part)
        level, hashes = level + 1, [hash_tree(part) for part in parts if len(part) == WIDTH]


def _name(level: int | str, number: int, width: int) -> str:
    """Return the path of a tile: numbers by three digits, each group but the last with an x before it."""
    digits = f"{number:03d}"
    digits = digits.zfill(-(-len(digits) // 3) * 3)
    groups = [digits[start : start + 3] for start in range(0, len(digits), 3)]
    place = "/".join([*(f"x{group}" for group in groups[:-1]), groups[-1]])
    return f"tile/{level}/{place}" + f".p/{width}" * (width < WIDTH)


def _read_entries(folder: Path, size: int) -> Iterator[bytes]:
    for number, start in enumerate(range(0, size, WIDTH)):
        width = min(WIDTH, size - start)
        path, cut = _find_tile(folder, _name("entries", number, width))
        content, place = _read(path, WIDTH * (_LENGTH.size + LARGEST)), 0
        for _ in range(width):
            length = int.from_bytes(content[place : place + _LENGTH.size])
            place += _LENGTH.size + length
            if not length or place > len(content):
                raise IntegrityError(f"{path} ends before its last entry")
            yield content[place - length : place]
        if place < len(content) and not cut:
            raise IntegrityError(f"{path} has more than {width} entries")


def _find_tile(folder: Path, name: str) -> tuple[Path, bool]:
    """Return the file of a tile or bundle, and whether only its beginning counts.

    A part that is not there may have been removed when it was full.
    """
    path = folder / name
    if path.parent.suffix == ".p" and not path.exists():
        return path.parent.with_suffix(""), True
    return path, False


def _read(path: Path, most: int) -> bytes:
    if not path.is_file():
        raise IntegrityError(f"{path} is missing, or no regular file")
    with path.open("rb") as stream:
        content = stream.read(most + 1)
    if len(content) > most:
        raise IntegrityError(f"{path} is longer than it can be")
    return content


def _flush(folder: Path) -> None:
    """Let the names of files reach the disk, so that no head is lost that a witness may have seen."""
    for path in (folder, *(each for each in (folder / "tile").rglob("*") if each.is_dir())):
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _sweep(folder: Path, before: int, size: int) -> None:
    """Remove the parts of tiles and bundles that have become full."""
    names: tuple[int | str, ...] = (0, "entries")
    while size := size // WIDTH:
        for number in range(before := before // WIDTH, size):
            for name in names:
                shutil.rmtree(folder / f"{_name(name, number, WIDTH)}.p", ignore_errors=True)
        names = (int(names[0]) + 1,)
