"""Two wheels of one plan, compared file by file: how far the build is reproducible, and where it is not.

The rungs of the ladder: R1 the same files, R2 the same bytes but for a named list of files, R3 identical. What parts R2
from R3 is harmless: RECORD, which follows from the other files, and what the archive says of a file besides its
content. Any other difference counts as one in code, whatever the file, because a program may read it.
"""

import hashlib
import re
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Rung = Literal["below R1", "R1", "R2", "R3"]
RUNGS: tuple[Rung, ...] = ("below R1", "R1", "R2", "R3")
"""From the lowest to the highest."""

HARMLESS = re.compile(r"[^/]+\.dist-info/RECORD")
"""Files whose content may differ between two builds of one plan."""

_PIECE = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One file that differs, and how.

    Attributes:
        name: of the file in the wheel.
        kind: ``missing``, ``added``, ``content``, or ``envelope`` for what the archive says of an equal file.
        detail: in words.
    """

    name: str
    kind: Literal["missing", "added", "content", "envelope"]
    detail: str

    @property
    def harmless(self) -> bool:
        """Whether the difference is on the list of those that change nothing that runs."""
        return self.kind == "envelope" or (self.kind == "content" and bool(HARMLESS.fullmatch(self.name)))


def compare(first: Path, second: Path) -> list[Difference]:
    """The differences between two whole wheels, by name."""
    with zipfile.ZipFile(first) as one, zipfile.ZipFile(second) as two:
        ours, theirs = ({item.filename: item for item in archive.infolist()} for archive in (one, two))
        found = [Difference(name=name, kind="missing", detail="only in the first") for name in ours.keys() - theirs]
        found += [Difference(name=name, kind="added", detail="only in the second") for name in theirs.keys() - ours]
        for name in ours.keys() & theirs.keys():
            found += _compare_member(one, two, ours[name], theirs[name])
        if not found and _digest(first) != _digest(second):
            found.append(Difference(name="", kind="envelope", detail=_explain_order(list(ours), list(theirs))))
    return sorted(found, key=lambda item: item.name)


def rank(differences: list[Difference]) -> Rung:
    """The rung that the differences leave.

    R2 allows harmless differences alone. Another content of any file leaves R1, another list of files not even that.
    """
    if not differences:
        return "R3"
    if any(item.kind in {"missing", "added"} for item in differences):
        return "below R1"
    return "R2" if all(item.harmless for item in differences) else "R1"


def describe_content(name: str, start: bytes) -> str:
    """Say what kind of file differs, by its first bytes and its name.

    Args:
        name: of the file in the wheel.
        start: at least its first four bytes.
    """
    if start[:4] == b"\x7fELF":
        return "machine code"
    if start[:4] == b"\x50\xed\x55\xba" or name.endswith((".fatbin", ".cubin", ".ptx")):
        return "GPU code"
    return "Python code" if name.endswith((".py", ".pyc", ".pyi")) else "data"


def _compare_member(
    one: zipfile.ZipFile, two: zipfile.ZipFile, ours: zipfile.ZipInfo, theirs: zipfile.ZipInfo
) -> Iterator[Difference]:
    if (ours.CRC, ours.file_size) != (theirs.CRC, theirs.file_size):
        with two.open(theirs) as stream:
            sort = describe_content(ours.filename, stream.read(4))
        detail = f"{sort}: {_explain_content(one, two, ours, theirs)}"
        yield Difference(name=ours.filename, kind="content", detail=detail)
        return
    if _digest_member(one, ours) != _digest_member(two, theirs):
        yield Difference(name=ours.filename, kind="content", detail="equal size and CRC, other bytes")
        return
    for label, before, after in (
        ("time", ours.date_time, theirs.date_time),
        ("mode", oct(ours.external_attr >> 16), oct(theirs.external_attr >> 16)),
        ("compression", ours.compress_type, theirs.compress_type),
    ):
        if before != after:
            yield Difference(name=ours.filename, kind="envelope", detail=f"{label} {before} and {after}")


def _explain_content(one: zipfile.ZipFile, two: zipfile.ZipFile, ours: zipfile.ZipInfo, theirs: zipfile.ZipInfo) -> str:
    if ours.file_size != theirs.file_size:
        return f"{ours.file_size:,} and {theirs.file_size:,} bytes"
    at, different = 0, 0
    first = -1
    with one.open(ours) as left, two.open(theirs) as right:
        while piece := left.read(_PIECE):
            other = right.read(len(piece))
            if piece != other:
                places = [index for index, (a, b) in enumerate(zip(piece, other, strict=True)) if a != b]
                first = at + places[0] if first < 0 else first
                different += len(places)
            at += len(piece)
    return f"{different:,} of {ours.file_size:,} bytes, the first at {first:#x}"


def _explain_order(ours: list[str], theirs: list[str]) -> str:
    return "the files are in another order" if ours != theirs else "the archive is packed in another way"


def _digest_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> str:
    with archive.open(member) as stream:
        hasher = hashlib.sha256()
        while piece := stream.read(_PIECE):
            hasher.update(piece)
    return hasher.hexdigest()


def _digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
