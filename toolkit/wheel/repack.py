"""Writes a wheel with some files replaced, another local version, and a RECORD that fits.

Unchanged files are copied in their compressed form. A replaced file is compressed in pieces of a fixed size, several at
a time, as pigz does (M. Adler, https://zlib.net/pigz). The dictionary of each piece is the end of the piece before it,
so the bytes do not depend on the number of cores.
"""

import base64
import csv
import hashlib
import io
import re
import struct
import tempfile
import zipfile
import zlib
from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from toolkit.base.errors import IntegrityError
from toolkit.wheel import archive
from train.cores import count_cores

_PIECE: Final = 8 << 20
_WINDOW: Final = 1 << 15
_LEVEL: Final = 6
_LOCAL = struct.Struct("<26xHH")  # bytes of the name and of the extra field in a local header
_LIMIT: Final = 0xFFFFFFFF
EXTRA: Final = "and-cuda"
"""The extra of TensorFlow's wheels that requires NVIDIA's packages."""
NO_EXTRA: Final = {EXTRA: ""}
"""New requirements of a wheel for processors, of which every build makes an extra ``and-cuda``: that it has none."""
_EXTRA_LINE = re.compile(rf"Provides-Extra: {EXTRA}$|Requires-Dist: .*\bextra == ['\"]{EXTRA}['\"]")
_RECORD, _METADATA = "RECORD", "METADATA"


@dataclass(frozen=True, kw_only=True)
class _Row:
    name: str
    hash: str  # as in RECORD
    size: str


def extend_version(version: str, local: str) -> str:
    """Return a version with a local part, or with one part more."""
    return f"{version}.{local}" if "+" in version else f"{version}+{local}"


def repack(
    source: Path,
    target: Path,
    replaced: Mapping[str, Path],
    versions: tuple[str, str],
    *,
    requirements: Mapping[str, str] | None = None,
    added: Mapping[str, bytes] | None = None,
) -> None:
    """Write a wheel with another version.

    ``replaced``: new content of files by their name. ``versions``: the old and the new version. ``requirements``: new
    specifiers of packages that its extra ``and-cuda`` requires. ``added``: more files of its ``.dist-info``. Raises
    IntegrityError if the wheel lacks one of the files, if its RECORD cannot be read, or if it would exceed four
    gigabytes.
    """
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new, source.open("rb") as raw:
        names = old.namelist()
        info = next((name.partition("/")[0] for name in names if name.endswith(f".dist-info/{_RECORD}")), "")
        renamed = info.replace(f"-{versions[0]}.", f"-{versions[1]}.")
        named = f"-{versions[0]}." in info
        if missing := sorted(replaced.keys() - set(names)) or ([] if named else [f"version {versions[0]}"]):
            raise IntegrityError(f"{source.name} lacks {missing[0]}", remedy="fetch or build the wheel again")
        rows = {row.name: row for row in _read_record(old.read(f"{info}/{_RECORD}"))}
        made = []
        for item in old.infolist():
            name = item.filename.replace(info, renamed, 1) if item.filename.startswith(f"{info}/") else item.filename
            if item.filename == f"{info}/{_RECORD}":
                continue
            if item.filename == f"{info}/{_METADATA}":
                text = _change_metadata(old.read(item), versions, requirements or {})
                new.writestr(_describe(item, name), text, compresslevel=_LEVEL)
                made.append(_Row(name=name, hash=_encode(hashlib.sha256(text).digest()), size=str(len(text))))
            elif item.filename in replaced:
                made.append(_pack(new, _describe(item, name), replaced[item.filename]))
            else:
                _copy(new, raw, item, name)
                if item.filename in rows:
                    made.append(_Row(name=name, hash=rows[item.filename].hash, size=rows[item.filename].size))
        for file, content in (added or {}).items():
            like = _describe(old.getinfo(f"{info}/{_RECORD}"), f"{renamed}/{file}")
            new.writestr(like, content, compresslevel=_LEVEL)
            value = _encode(hashlib.sha256(content).digest())
            made.append(_Row(name=like.filename, hash=value, size=str(len(content))))
        record = _write_record([*made, _Row(name=f"{renamed}/{_RECORD}", hash="", size="")])
        new.writestr(_describe(old.getinfo(f"{info}/{_RECORD}"), f"{renamed}/{_RECORD}"), record, compresslevel=_LEVEL)
    if target.stat().st_size > _LIMIT:
        raise IntegrityError(f"{target.name} would be larger than four gigabytes", remedy="give --only")


def change_requirements(wheel: Path, requirements: Mapping[str, str]) -> bool:
    """Give a wheel in its place new specifiers of packages that its extra ``and-cuda`` requires; return whether it did.

    Raises what :func:`toolkit.wheel.archive.open_wheel` raises, and IntegrityError.
    """
    with archive.open_wheel(wheel) as opened:
        version = opened.identity.version
        metadata = opened.read_metadata().encode()
    if _change_metadata(metadata, (version, version), requirements) == metadata:
        return False
    with tempfile.TemporaryDirectory(dir=wheel.parent) as folder:
        made = Path(folder, wheel.name)
        repack(wheel, made, {}, (version, version), requirements=requirements)
        made.replace(wheel)
    return True


def _change_metadata(metadata: bytes, versions: tuple[str, str], requirements: Mapping[str, str]) -> bytes:
    head, separator, body = metadata.partition(b"\n\n")
    lines = [
        f"Version: {versions[1]}" if line == f"Version: {versions[0]}" else _change_requirement(line, requirements)
        for line in head.decode().split("\n")
        if not (requirements == NO_EXTRA and _EXTRA_LINE.match(line))
    ]
    changed = "\n".join(lines).encode()
    return changed + separator + body


def _change_requirement(line: str, requirements: Mapping[str, str]) -> str:
    """Return a line of METADATA with another specifier, if it is that of a package of the extra ``and-cuda``."""
    name, _, text = line.partition(": ")
    if name != "Requires-Dist" or EXTRA not in text:
        return line
    try:
        requirement = Requirement(text)
    except InvalidRequirement:
        return line
    bounds = requirements.get(canonicalize_name(requirement.name))
    return f"{name}: {requirement.name}{bounds}; {requirement.marker}" if bounds and requirement.marker else line


def _describe(item: zipfile.ZipInfo, name: str) -> zipfile.ZipInfo:
    """Return the description of a new file, with the time and the mode of the one that it replaces."""
    described = zipfile.ZipInfo(name, item.date_time)
    described.external_attr, described.create_system = item.external_attr, item.create_system
    described.compress_type = zipfile.ZIP_DEFLATED
    return described


def _copy(new: zipfile.ZipFile, raw: BinaryIO, item: zipfile.ZipInfo, name: str) -> None:
    """Copy a file without unpacking it, which the ``zipfile`` library has no method for."""
    raw.seek(item.header_offset)
    lengths = _LOCAL.unpack(raw.read(_LOCAL.size))
    raw.seek(item.header_offset + _LOCAL.size + sum(lengths))
    described = copy(item)
    described.filename, described.extra = name, b""
    described.flag_bits &= ~0x08  # sizes stand in the header, and not behind the content
    _append(new, described, _read_pieces(raw, item.compress_size))


def _read_pieces(stream: BinaryIO, size: int) -> Iterator[bytes]:
    while size:
        piece = stream.read(min(size, _PIECE))
        if not piece:
            raise IntegrityError("the wheel is cut off", remedy="fetch or build it again")
        size -= len(piece)
        yield piece


def _append(new: zipfile.ZipFile, item: zipfile.ZipInfo, packed: Iterator[bytes]) -> None:
    """Add a file whose packed content is known, by what ``ZipFile`` itself does when it closes a new one."""
    stream = new.fp
    assert stream is not None  # noqa: S101 - the archive is open
    stream.seek(new.start_dir)
    item.header_offset = stream.tell()
    stream.write(item.FileHeader(zip64=False))
    for piece in packed:
        stream.write(piece)
    new.start_dir = stream.tell()
    new.filelist.append(item)
    new.NameToInfo[item.filename] = item


def _pack(new: zipfile.ZipFile, item: zipfile.ZipInfo, source: Path) -> _Row:
    """Add a file, packed by all cores; return its row of RECORD."""
    hasher, item.file_size, item.CRC, item.compress_size = hashlib.sha256(), source.stat().st_size, 0, 0
    stream = new.fp
    assert stream is not None  # noqa: S101 - the archive is open
    stream.seek(new.start_dir)
    item.header_offset = stream.tell()
    stream.write(item.FileHeader(zip64=False))
    with source.open("rb") as file, ThreadPoolExecutor(count_cores()) as pool:
        for piece, packed in _deflate(file, item.file_size, pool):
            hasher.update(piece)
            item.CRC = zlib.crc32(piece, item.CRC)
            item.compress_size += len(packed)
            stream.write(packed)
    new.start_dir = stream.tell()
    stream.seek(item.header_offset)
    stream.write(item.FileHeader(zip64=False))
    new.filelist.append(item)
    new.NameToInfo[item.filename] = item
    return _Row(name=item.filename, hash=_encode(hasher.digest()), size=str(item.file_size))


def _deflate(file: BinaryIO, size: int, pool: ThreadPoolExecutor) -> Iterator[tuple[bytes, bytes]]:
    """Yield the pieces of a file, each with its packed form; together these are one stream."""
    waiting: deque[tuple[bytes, Future[bytes]]] = deque()
    window, left = b"", size
    while left or waiting or not size:
        while (left or not size) and len(waiting) <= count_cores():
            piece = file.read(min(left, _PIECE))
            left -= len(piece)
            waiting.append((piece, pool.submit(_deflate_piece, piece, window, last=not left)))
            window = piece[-_WINDOW:]
            size = size or 1  # an empty file is one empty piece
        piece, packed = waiting.popleft()
        yield piece, packed.result()


def _deflate_piece(piece: bytes, window: bytes, *, last: bool) -> bytes:
    packer = (
        zlib.compressobj(_LEVEL, zlib.DEFLATED, -15, zdict=window)
        if window
        else zlib.compressobj(_LEVEL, zlib.DEFLATED, -15)
    )
    return packer.compress(piece) + packer.flush(zlib.Z_FINISH if last else zlib.Z_SYNC_FLUSH)


def _read_record(data: bytes) -> Iterator[_Row]:
    try:
        for row in csv.reader(io.StringIO(data.decode()), strict=True):
            if row:
                yield _Row(name=row[0], hash=row[1], size=row[2])
    except (csv.Error, IndexError, UnicodeDecodeError) as error:
        raise IntegrityError("the RECORD of the wheel cannot be read", why=str(error)) from error


def _write_record(rows: list[_Row]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows((row.name, row.hash, row.size) for row in rows)
    return text.getvalue()


def _encode(value: bytes) -> str:
    return "sha256=" + base64.urlsafe_b64encode(value).decode().rstrip("=")
