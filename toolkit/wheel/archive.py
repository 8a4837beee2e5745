"""Reads a wheel without unpacking it, and checks every byte against its RECORD.
https://packaging.python.org/en/latest/specifications/binary-distribution-format/: RECORD names each file with its
sha256 in url-safe base64 without padding. The ``installer`` library validates RECORD too, but it accepts a wheel that
lacks a recorded file or has one name twice, and it would unpack a wheel of 645 MB twice.
"""

import base64
import csv
import errno
import hashlib
import io
import mmap
import struct
import tempfile
import unicodedata
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from email.parser import HeaderParser
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from packaging.tags import Tag
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from toolkit.base.errors import IntegrityError, PreflightError, UsageError
from train.system import budget

REMEDY = "fetch or build the wheel again"
_PIECE = 1 << 20
_UNRECORDED = ("RECORD", "RECORD.jws", "RECORD.p7s")
_LARGEST_TEXT = 1 << 24
_FILE, _FOLDER = 0o10, 0o4  # kinds of files of Unix, which a zip keeps above the 28 lower bits
_ENCRYPTED, _SIZES_BEHIND = 1, 8  # bits of a member's flags
_BEHIND = (12, 16, 20, 24)  # lengths of what has a member's sizes behind it
_LOCAL = struct.Struct("<26xHH")  # the head of a member; it ends with the lengths of name and extra field
_OTHER_NAME = 0x7075
"""Field of a member with another name for it, which some programs take in place of the first."""
_DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, OSError, ValueError)
"""What zipfile raises on damaged, truncated, encrypted or hostile archives."""
_OF_MACHINE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EMFILE, errno.ENFILE}
"""Errors that say nothing of a wheel."""


@dataclass(frozen=True, kw_only=True)
class Identity:
    name: str
    version: str
    tags: frozenset[Tag]

    @property
    def pythons(self) -> frozenset[str]:
        return frozenset(tag.interpreter for tag in self.tags)


class Archive:
    def __init__(self, path: Path, archive: zipfile.ZipFile, identity: Identity, folder: str) -> None:
        self.path = path
        self.identity = identity
        self.folder = folder  # its ``.dist-info``
        self._unrecorded = {f"{folder}/{name}" for name in _UNRECORDED}
        self._zip = archive

    def read_text(self, member: str) -> str | None:
        return _read_text(self._zip, self.path, member) if member in self._zip.namelist() else None

    def read_metadata(self) -> str:
        return self.read_text(f"{self.folder}/METADATA") or ""

    def read_members(self, magic: bytes) -> Iterator[tuple[str, mmap.mmap]]:
        """Check every file of the wheel against RECORD, and yield name and content of those that begin with ``magic``.

        Each content is valid until the next one is yielded. Raises IntegrityError if a file is damaged or missing.
        """
        record = self._read_record()
        listed = {name for name in self._zip.namelist() if not name.endswith("/")}
        unrecorded = listed - record.keys() - self._unrecorded
        for wrong, fault in ((unrecorded, "is not in RECORD"), (record.keys() - listed, "is in RECORD but not there")):
            if wrong:
                raise self._complain(f"{min(wrong)} {fault}")
        for name in self._zip.namelist():
            if name in record:
                yield from self._check(name, record[name], magic)

    def _check(self, name: str, recorded: str, magic: bytes) -> Iterator[tuple[str, mmap.mmap]]:
        algorithm, _, wanted = recorded.partition("=")
        if algorithm not in {"sha256", "sha384", "sha512"}:
            raise self._complain(f"RECORD has no strong hash for {name}")
        hasher = hashlib.new(algorithm)
        with tempfile.TemporaryFile() as spool:
            with _naming_damage(self.path), self._zip.open(name) as stream:
                head = stream.read(_PIECE)
                spooled = head.startswith(magic)
                while head:
                    hasher.update(head)
                    if spooled:
                        spool.write(head)
                    head = stream.read(_PIECE)
            if base64.urlsafe_b64encode(hasher.digest()).decode().rstrip("=") != wanted:
                raise self._complain(f"{name} is not what RECORD says")
            if spooled:
                spool.flush()
                with mmap.mmap(spool.fileno(), 0, access=mmap.ACCESS_READ) as content:
                    yield name, content

    def _read_record(self) -> dict[str, str]:
        text = self.read_text(f"{self.folder}/RECORD")
        if text is None:
            raise self._complain("it has no RECORD")
        try:
            rows = [row for row in csv.reader(io.StringIO(text), strict=True) if row]
            return {row[0]: row[1] for row in rows if row[1] or row[0] not in self._unrecorded}
        except (csv.Error, IndexError) as error:
            raise self._complain("its RECORD cannot be read") from error

    def _complain(self, why: str) -> IntegrityError:
        return _complain(self.path, why)


@contextmanager
def open_wheel(path: Path) -> Iterator[Archive]:
    """Open a wheel and read its name, version and tags.

    Raises UsageError if there is no such file, or its name is not that of a wheel. Raises IntegrityError if the file
    is damaged, if its metadata contradicts its name, or if installers could find different files in it.
    """
    if not path.is_file():
        raise UsageError(f"there is no wheel {path}", remedy="give the path of a .whl file")
    try:
        name, version, _, tags = parse_wheel_filename(path.name)
    except InvalidWheelFilename as error:
        raise UsageError(
            f"{path.name} is not the name of a wheel",
            why=str(error),
            remedy="do not rename wheels: the name holds version and tags",
        ) from error
    with _naming_damage(path), path.open("rb") as raw, zipfile.ZipFile(raw) as archive:
        _require_plain(archive, path)
        _require_whole(archive, path, raw)
        folder = _find_dist_info(archive, path)
        metadata = HeaderParser().parsestr(_read_text(archive, path, f"{folder}/METADATA"))
        named = (canonicalize_name(metadata.get("Name", "")), metadata.get("Version", ""))
        if named != (name, str(version)):
            raise _complain(path, f"its metadata is that of {' '.join(named)}")
        identity = Identity(name=name, version=str(version), tags=frozenset(tags))
        yield Archive(path, archive, identity, folder)


def _require_plain(archive: zipfile.ZipFile, path: Path) -> None:
    """Raise IntegrityError unless a wheel has plain files inside of its folder under names that all read."""
    items, seen = archive.infolist(), dict[str, str]()
    folders = {str(parent) for item in items for parent in PurePosixPath(item.filename).parents}
    for item in items:
        name, kind = item.filename.removesuffix("/"), item.external_attr >> 28
        plain = PurePosixPath(name)
        if plain.is_absolute() or ".." in plain.parts:
            raise _complain(path, f"it has a file that would land outside: {name}")
        if kind not in {0, _FOLDER if item.is_dir() else _FILE} or item.flag_bits & _ENCRYPTED:
            raise _complain(path, f"it has a link, a device or an encrypted file: {name}")
        odd = str(plain) != name or "\\" in name or not name.isprintable() or item.orig_filename != item.filename
        if odd or _OTHER_NAME in _list_fields(item.extra):
            raise _complain(path, f"it has a name that installers read in different ways: {name!r}")
        other = seen.setdefault(unicodedata.normalize("NFC", name).casefold(), name)
        if other != name:
            raise _complain(path, f"it has names that differ by case or form alone: {other} and {name}")
        if not item.is_dir() and name in folders:
            raise _complain(path, f"it has a file and a folder of one name: {name}")
    if len(seen) < len(items):
        raise _complain(path, "it has two files of one name")
    if sum(item.file_size for item in items) > budget.allow(path.stat().st_size):
        raise _complain(path, f"it unpacks to more than {budget.MOST_TIMES} times its size")


def _list_fields(extra: bytes) -> Iterator[int]:
    while len(extra) >= 4:
        number, length = struct.unpack_from("<HH", extra)
        yield number
        extra = extra[4 + length :]


def _require_whole(archive: zipfile.ZipFile, path: Path, raw: BinaryIO) -> None:
    """Raise IntegrityError if a wheel has bytes that belong to no file, which one that streams it may take."""
    end = 0
    behind: tuple[int, ...] = (0,)
    for item in sorted(archive.infolist(), key=lambda item: item.header_offset):
        if item.header_offset - end not in behind:
            break
        raw.seek(item.header_offset)
        end = item.header_offset + _LOCAL.size + sum(_LOCAL.unpack(raw.read(_LOCAL.size))) + item.compress_size
        behind = _BEHIND if item.flag_bits & _SIZES_BEHIND else (0,)
    if archive.start_dir - end not in behind or archive.comment:
        raise _complain(path, "it has bytes that are of none of its files")


def _read_text(archive: zipfile.ZipFile, path: Path, member: str) -> str:
    if (size := archive.getinfo(member).file_size) > _LARGEST_TEXT:
        raise _complain(path, f"its {member} has {size:,} bytes, and may have {_LARGEST_TEXT:,}")
    with _naming_damage(path):
        return archive.read(member).decode()


def _find_dist_info(archive: zipfile.ZipFile, path: Path) -> str:
    parts = (name.partition("/") for name in archive.namelist())
    folders = {folder for folder, _, file in parts if folder.endswith(".dist-info") and file == "METADATA"}
    if len(folders) != 1:
        raise _complain(path, "it has no metadata" if not folders else "it has the metadata of several packages")
    return folders.pop()


@contextmanager
def _naming_damage(path: Path) -> Iterator[None]:
    try:
        yield
    except _DAMAGE as error:
        if isinstance(error, OSError) and error.errno in _OF_MACHINE:
            raise PreflightError(
                f"cannot unpack {path.name}",
                why=error.strerror or "",
                remedy="free space, or set TMPDIR to a folder that has some",
            ) from error
        raise _complain(path, f"it is damaged or cut off: {error}") from error


def _complain(path: Path, why: str) -> IntegrityError:
    return IntegrityError(f"{path.name} is not a whole wheel", why=why, remedy=REMEDY)
