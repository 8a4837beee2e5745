"""Builds a wheel again without any result of the first build, and compares the two wheels file by file.

The levels: R1 is the same file list, R2 the same contents except for harmless differences, R3 the same bytes. Harmless
are differences in RECORD, which is derived from the other files, and in the archive's metadata, such as times.
"""

import hashlib
import re
import stat
import time
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from toolkit.base import digest
from toolkit.base.console import Console
from toolkit.base.errors import CheckError, IntegrityError
from toolkit.records import Wheel
from toolkit.versions.settings import Settings
from toolkit.wheel import wheel_folder
from train.system import budget

Level = Literal["below R1", "R1", "R2", "R3"]
LEVELS: tuple[Level, ...] = ("below R1", "R1", "R2", "R3")
"""From the lowest to the highest."""

HARMLESS = re.compile(r"[^/]+\.dist-info/RECORD")
"""Files whose content may differ between two builds of one plan."""

_PIECE = 1 << 20

_NAMED = 4
"""Number of files that an error names."""
_MEANING = {
    "R3": "the same wheel, to the byte",
    "R2": "the same bytes in every file but RECORD; the archive's own data differs",
    "R1": "the same file list; some contents differ",
    "below R1": "another file list",
}


@dataclass(frozen=True, kw_only=True)
class Difference:
    name: str  # of the file in the wheel
    # ``envelope``: the contents are equal, but the archive's metadata differs
    kind: Literal["missing", "added", "content", "envelope"]
    detail: str  # in words

    @property
    def harmless(self) -> bool:
        return self.kind == "envelope" or (self.kind == "content" and bool(HARMLESS.fullmatch(self.name)))


def compare(first: Path, second: Path) -> list[Difference]:
    with zipfile.ZipFile(first) as old, zipfile.ZipFile(second) as new:
        for path, archive in ((first, old), (second, new)):
            budget.require(path, sum(item.file_size for item in archive.infolist()), path.stat().st_size)
        ours, theirs = _group_members(old), _group_members(new)
        differences = [
            Difference(name=name, kind="missing", detail="only in the first") for name in ours.keys() - theirs
        ]
        differences += [
            Difference(name=name, kind="added", detail="only in the second") for name in theirs.keys() - ours
        ]
        for name in ours.keys() & theirs.keys():
            if len(ours[name]) != len(theirs[name]):
                detail = f"stands {len(ours[name])} times in the first, {len(theirs[name])} in the second"
                differences.append(Difference(name=name, kind="added", detail=detail))
                continue
            for before, after in zip(ours[name], theirs[name], strict=True):
                differences += _compare_member(old, new, before, after)
        if not differences and digest.digest_file(first) != digest.digest_file(second):
            differences.append(Difference(name="", kind="envelope", detail=_explain_order(list(ours), list(theirs))))
    return sorted(differences, key=lambda item: item.name)


def _group_members(archive: zipfile.ZipFile) -> dict[str, list[zipfile.ZipInfo]]:
    """Return the members by name. A zip may hold a name twice, and programs disagree which entry counts."""
    members: dict[str, list[zipfile.ZipInfo]] = {}
    for item in archive.infolist():
        members.setdefault(item.filename, []).append(item)
    return members


def rank(differences: list[Difference]) -> Level:
    if not differences:
        return "R3"
    if any(item.kind in {"missing", "added"} for item in differences):
        return "below R1"
    return "R2" if all(item.harmless for item in differences) else "R1"


def describe_content(name: str, start: bytes) -> str:
    if start[:4] == b"\x7fELF":
        return "machine code"
    if start[:4] == b"\x50\xed\x55\xba" or name.endswith((".fatbin", ".cubin", ".ptx")):
        return "GPU code"
    return "Python code" if name.endswith((".py", ".pyc", ".pyi")) else "data"


def _compare_member(
    old: zipfile.ZipFile, new: zipfile.ZipFile, ours: zipfile.ZipInfo, theirs: zipfile.ZipInfo
) -> Iterator[Difference]:
    if (ours.CRC, ours.file_size) != (theirs.CRC, theirs.file_size):
        with new.open(theirs) as stream:
            sort = describe_content(ours.filename, stream.read(4))
        detail = f"{sort}: {_explain_content(old, new, ours, theirs)}"
        yield Difference(name=ours.filename, kind="content", detail=detail)
        return
    if _digest_member(old, ours) != _digest_member(new, theirs):
        yield Difference(name=ours.filename, kind="content", detail="equal size and CRC, other bytes")
        return
    modes = ours.external_attr >> 16, theirs.external_attr >> 16
    if stat.S_IFMT(modes[0]) != stat.S_IFMT(modes[1]):
        detail = f"type of file in the modes {modes[0]:#o} and {modes[1]:#o}"
        yield Difference(name=ours.filename, kind="content", detail=detail)
    for label, before, after in (
        ("time", ours.date_time, theirs.date_time),
        ("mode", *map(oct, modes)),
        ("compression", ours.compress_type, theirs.compress_type),
    ):
        if before != after:
            yield Difference(name=ours.filename, kind="envelope", detail=f"{label} {before} and {after}")


def _explain_content(old: zipfile.ZipFile, new: zipfile.ZipFile, ours: zipfile.ZipInfo, theirs: zipfile.ZipInfo) -> str:
    if ours.file_size != theirs.file_size:
        return f"{ours.file_size:,} and {theirs.file_size:,} bytes"
    at, different = 0, 0
    first = -1
    with old.open(ours) as left, new.open(theirs) as right:
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


@dataclass(frozen=True, kw_only=True)
class Comparison:
    wheel: str  # digest of the first wheel's file, which is also that of its record
    level: Level  # the highest level that the wheels reach
    differences: tuple[Difference, ...]  # each file that differs in the wheel, and how
    inputs: tuple[str, ...]  # Debian packages that differ between the build images; a possible cause
    seconds: float  # how long the second build took

    @property
    def summary(self) -> str:
        changed = f"; {len(self.inputs)} Debian packages differ" if self.inputs else ""
        return f"{self.level}, {_MEANING[self.level]}{changed}"


def require_level(comparison: Comparison, accepted: Level = "R2") -> None:
    if LEVELS.index(comparison.level) >= LEVELS.index(accepted):
        return
    names = [item.name or "the archive" for item in comparison.differences if not item.harmless or accepted == "R3"]
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    raise CheckError(
        f"the second build gave another wheel: {comparison.summary}",
        why=f"{', '.join(names[:_NAMED])}{more}: a cache or an executor may have given a wrong result, or the "
        "build is not reproducible",
        remedy="build again with a new cache (--cache NAME) and compare again; --accept R1 lets contents differ",
    )


def rebuild(wheel: Wheel, settings: Settings, *, bazelrc: str, console: Console) -> Comparison:
    """Build or graft a wheel again and compare.

    Raises BuildError if the build fails, IntegrityError if the first wheel has changed meanwhile or has no plan, and
    what :meth:`toolkit.records.Wheel.making_again` raises.
    """
    record = wheel.read_record()
    started = time.monotonic()
    with wheel.making_again(settings, console, bazelrc=bazelrc) as second:
        first = wheel_folder.find_wheel(wheel.folder)
        differences, compared = compare(first, wheel_folder.find_wheel(second)), digest.read_file(first)
        if compared != record.digest:
            raise IntegrityError(f"{first} has changed while it was built again", remedy="verify it, and start again")
        inputs = _read_packages(wheel.folder) ^ _read_packages(second)
    return Comparison(
        wheel=compared,
        level=rank(differences),
        differences=tuple(differences),
        inputs=tuple(sorted(inputs)),
        seconds=round(time.monotonic() - started, 1),
    )


def _read_packages(path: Path) -> set[str]:
    """Return the Debian packages of a build; a graft has none."""
    listed = path / "packages.txt"
    return set(listed.read_text().split()) if listed.exists() else set()
