"""Reads a wheel without unpacking it, and checks every byte against its RECORD.
https://packaging.python.org/en/latest/specifications/binary-distribution-format/: RECORD names each file with its
sha256 in url-safe base64 without padding. The ``installer`` library validates RECORD too, but it accepts a wheel that
lacks a recorded file or has one name twice, and it would unpack a wheel of 645 MB twice.
"""

import base64
import csv
import hashlib
import io
import mmap
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from email.parser import HeaderParser
from pathlib import Path, PurePosixPath

from packaging.tags import Tag
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from toolkit.errors import IntegrityError, UsageError

REMEDY = "fetch or build the wheel again"
_PIECE = 1 << 20
_UNRECORDED = ("RECORD", "RECORD.jws", "RECORD.p7s")
_DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, OSError, ValueError)
"""What zipfile raises on damaged, truncated, encrypted or hostile archives."""


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
        self._zip = archive

    def read_text(self, member: str) -> str | None:
        if member not in self._zip.namelist():
            return None
        with _naming_damage(self.path), self._zip.open(member) as stream:
            return stream.read(1 << 24).decode()

    def read_metadata(self) -> str:
        return self.read_text(f"{self.folder}/METADATA") or ""

    def read_members(self, magic: bytes) -> Iterator[tuple[str, mmap.mmap]]:
        """Check every file of the wheel against RECORD, and yield name and content of those that begin with ``magic``.

        Each content is valid until the next one is yielded. Raises IntegrityError if a file is damaged or missing.
        """
        record = self._read_record()
        names = self._zip.namelist()
        if len(set(names)) < len(names):
            raise self._complain("it has two files of one name")
        listed = {name for name in names if not name.endswith("/")}
        for name in sorted(listed):
            if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
                raise self._complain(f"it has a file that would land outside: {name}")
        unrecorded = {name for name in listed - record.keys() if PurePosixPath(name).name not in _UNRECORDED}
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
            return {row[0]: row[1] for row in rows if row[1] or PurePosixPath(row[0]).name not in _UNRECORDED}
        except (csv.Error, IndexError) as error:
            raise self._complain("its RECORD cannot be read") from error

    def _complain(self, why: str) -> IntegrityError:
        return _complain(self.path, why)


@contextmanager
def open_wheel(path: Path) -> Iterator[Archive]:
    """Open a wheel and read its name, version and tags.

    Raises UsageError if there is no such file, or its name is not that of a wheel. Raises IntegrityError if the file
    is damaged, or its metadata contradicts its name.
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
    with _naming_damage(path), zipfile.ZipFile(path) as archive:
        folder = _find_dist_info(archive, path)
        metadata = HeaderParser().parsestr(archive.read(f"{folder}/METADATA").decode())
        named = (canonicalize_name(metadata.get("Name", "")), metadata.get("Version", ""))
        if named != (name, str(version)):
            raise _complain(path, f"its metadata is that of {' '.join(named)}")
        identity = Identity(name=name, version=str(version), tags=frozenset(tags))
        yield Archive(path, archive, identity, folder)


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
        raise _complain(path, f"it is damaged or cut off: {error}") from error


def _complain(path: Path, why: str) -> IntegrityError:
    return IntegrityError(f"{path.name} is not a whole wheel", why=why, remedy=REMEDY)
