"""Finds, reads and checks the folder of a wheel: one wheel, its records, and ``SHA256SUMS``.

A wheel that this user made, grafted or pulled has this user's seal. One that a command finds by itself is taken only
with that seal, or with a signature that ``--trust`` asks for; the user may name any other by ``--wheel``.
"""

import hashlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from toolkit.base import digest, files, manifest, seals
from toolkit.base.errors import BuildError, IntegrityError, PreflightError, ToolkitError, UnsupportedError
from toolkit.base.manifest import Manifest
from toolkit.base.signing import ENVELOPE
from toolkit.engine import custody
from toolkit.versions.set import Set
from toolkit.wheel.archive import REMEDY
from toolkit.wheel.wheel_plan import WheelPlan
from train.system.files import read_text, require_size

SUMS = "SHA256SUMS"
_LINE = re.compile(r"([0-9a-f]{64}) [ *]([^/\0]+)")


@dataclass(frozen=True, kw_only=True)
class FinishedWheel:
    folder: Path  # ``dist/NAME``
    record: Manifest  # its manifest
    reused: bool  # whether it was made before
    pulled: bool = False  # whether it was downloaded now

    @property
    def wheel(self) -> Path:
        return find_wheel(self.folder)


Require = Callable[[Path, str], object]
"""Raises an error unless a thing that was found may be taken; its second argument is the digest of an environment."""


@dataclass(frozen=True, kw_only=True)
class Need:
    """What a wheel must have to run on cards."""

    versions: Set  # of the set in which it will run; its Python may be left open
    capabilities: tuple[str, ...]  # of the cards
    plan: WheelPlan | None = None  # its very wheel is taken first


def require_own(folder: Path, _identity: str = "") -> None:
    """Raise IntegrityError for a wheel that this user has not made on this machine. Other things have their own seals.

    Nothing is written.
    """
    record = manifest.read(folder)
    if record and record.kind == "wheel" and (doubt := find_doubt(folder)):
        raise IntegrityError(
            f"{folder} was found, and is not used unless you ask for it",
            why=doubt,
            remedy=f"to use it, name it: --wheel {folder}; `toolkit up` and `build-wheel --from` take it by a "
            "signature, with --trust KEY.pub; to have another made, remove it",
        )


def find_doubt(folder: Path) -> str:
    """Say why a folder is not that of a wheel that this user has made on this machine; empty if it is."""
    record = manifest.read(folder)
    if record is None or record.kind != "wheel":
        return "it has no record of a wheel"
    if stranger := seals.find_stranger(folder.parent):
        return stranger
    compare = partial(_compare, folder, record)
    return custody.inspect(folder, record.digest, partial(_read_fingerprint, folder), compare).doubt


def require_free(target: Path) -> None:
    """Raise PreflightError if a wheel would take the place of something that this user has not made."""
    if (target.exists() or target.is_symlink()) and (doubt := find_doubt(target)):
        raise PreflightError(
            f"{target} is in the way, and is not removed unasked",
            why=doubt,
            remedy="remove it if it is not needed, or choose another folder with --out",
        )


def seal(folder: Path) -> None:
    """Mark the folder of a finished wheel as this user's. Raises PreflightError if the key cannot be kept."""
    seals.make_key()
    custody.seal(folder, _read_fingerprint(folder))


def _read_fingerprint(folder: Path) -> str:
    lines = []
    for path in sorted(folder.glob("*.whl")):
        status = path.lstat()
        times = f"{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}"
        lines.append(f"{path.name} {times} {status.st_ino} {status.st_mode} {status.st_uid}")
    return f"sha256:{hashlib.sha256(repr(lines).encode()).hexdigest()}"


def _compare(folder: Path, record: Manifest) -> tuple[str, str]:
    """Read the wheel of a folder; say what is not as its record says, and return the fingerprint of before."""
    fingerprint, wheels = _read_fingerprint(folder), [path for path in folder.glob("*.whl") if _is_plain(path)]
    same = [digest.read_file(path) for path in wheels] == [record.digest]
    return "" if same else "the wheel is not that of its record", fingerprint


def search(need: Need, dist: Path, require: Require = require_own) -> FinishedWheel | None:
    """Return a wheel in ``dist`` that serves a need: that of its plan, or else the newest. None: there is none.

    If all that would serve are refused, the error of the first one is raised.
    """
    refused: list[ToolkitError] = []
    for found in _list_serving(need, dist):
        try:
            require(found.folder, "")
        except ToolkitError as error:
            refused.append(error)
        else:
            return found
    if refused:
        raise refused[0]
    return None


def _list_serving(need: Need, dist: Path) -> Iterator[FinishedWheel]:
    exact = find(need.plan, dist) if need.plan else None
    if exact:
        yield exact
    folders = [path.parent for path in dist.glob(f"[!.]*/{manifest.FILE}")]
    for folder in sorted(folders, key=lambda folder: (folder / manifest.FILE).stat().st_mtime, reverse=True):
        record = manifest.read(folder)
        if record and record.kind == "wheel" and _serves(record, folder, need):
            yield FinishedWheel(folder=folder, record=record, reused=True)


def _serves(record: Manifest, folder: Path, need: Need) -> bool:
    """Return whether a wheel has machine code for the cards and runs in the set, by its record."""
    from toolkit.checks.gpu_rules import find_coverage
    from toolkit.wheel import inspection  # slow to load, and most commands look for no wheel

    try:
        inspected = inspection.restore(record.facts["inspection"])
        codes = [find_coverage(inspected.architectures, capability) for capability in need.capabilities]
        inspection.require_runnable(
            inspected,
            Set(python=inspected.python_versions[0]).merge(need.versions),
            built_cudnn=find_built_cudnn(record),
        )
    except (LookupError, TypeError, ValueError, AttributeError, UnsupportedError):  # records may be of any form
        return False
    return (
        (folder / inspected.file).is_file()
        and bool(codes)
        and all(code is not None and code.is_native for code in codes)
    )


def find_built_cudnn(record: Manifest) -> str:
    """Return the cuDNN that a wheel was built for; empty if its record does not tell it exactly."""
    if "graft" in record.facts:  # whoever built the original knows; the lock has that of the run-time set
        return ""
    return Set.of((record.facts.get("lock") or {}).get("spec") or {}).cudnn


def find(plan: WheelPlan, dist: Path) -> FinishedWheel | None:
    """Return the finished wheel of a plan in ``dist``, if its record names the plan. Whose it is was not asked."""
    folder = dist / plan.name
    record = manifest.read(folder)
    if record is None or record.kind != "wheel" or record.facts.get("plan") != plan.digest:
        return None
    # Only the size is compared, because hashing a real wheel takes seconds. `toolkit verify` does it.
    sizes = [path.stat().st_size for path in folder.glob("*.whl")]
    if sizes != [record.facts.get("inspection", {}).get("bytes")]:
        return None
    return FinishedWheel(folder=folder, record=record, reused=True)


def find_wheel(folder: Path) -> Path:
    """Return the one wheel of a folder. Raises BuildError if there is none, or more than one."""
    wheels = sorted(folder.glob("*.whl"))
    if len(wheels) != 1:
        raise BuildError(
            f"{len(wheels)} wheels in {folder} where one was expected",
            why=", ".join(path.name for path in wheels),
            remedy="look into the build log",
        )
    return wheels[0]


def list_files(folder: Path) -> list[Path]:
    """Return what belongs to a wheel: all in its folder but the seal, which says nothing on another machine."""
    return sorted(path for path in folder.iterdir() if path.name != custody.FILE)


def write_sums(folder: Path) -> dict[str, str]:
    digests = _digest_files(folder)
    lines = [f"{value.removeprefix('sha256:')}  {name}\n" for name, value in sorted(digests.items())]
    files.write_atomically(folder / SUMS, "".join(lines))
    return digests


def check_sums(folder: Path) -> dict[str, str]:
    """Check a folder against its checksums; return each file's digest. Raises IntegrityError if they do not match."""
    listed = _read_sums(folder)
    digests = _digest_files(folder)
    strange = {path.name for path in list_files(folder) if not _is_plain(path)}
    wrong = []
    for name in sorted(listed.keys() | digests.keys() | strange):
        if name in strange:
            wrong.append(f"{name} is no regular file")
        elif name not in digests:
            wrong.append(f"{name} is missing")
        elif name not in listed:
            wrong.append(f"{name} is not in {SUMS}")
        elif digests[name] != listed[name]:
            wrong.append(f"{name} is not what {SUMS} says")
    if wrong:
        raise _complain(folder, "; ".join(wrong))
    return digests


def check_sum(file: Path) -> str:
    """Check one file against the checksums beside it, if any; return its digest, or an empty text without checksums.

    A file that neither exists nor is listed passes. Raises IntegrityError if it is changed, missing or unlisted.
    """
    if not (file.parent / SUMS).exists():
        return ""
    listed = _read_sums(file.parent)
    if not file.exists():
        if file.name in listed:
            raise _complain(file.parent, f"{file.name} is missing")
        return ""
    if file.name not in listed:
        raise _complain(file.parent, f"{file.name} is not in {SUMS}")
    if digest.digest_file(file) != listed[file.name]:
        raise _complain(file.parent, f"{file.name} is not what {SUMS} says")
    return listed[file.name]


def _read_sums(folder: Path) -> dict[str, str]:
    try:
        lines = read_text(folder / SUMS).splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise IntegrityError(f"{folder} has no readable {SUMS}", why=str(error), remedy=REMEDY) from error
    listed = {}
    for line in lines:
        match = _LINE.fullmatch(line)
        if match is None:
            raise _complain(folder, f"{SUMS} has a line that is no sum: {line[:80]!r}")
        listed[match[2]] = f"sha256:{match[1]}"
    return listed


def _digest_files(folder: Path) -> dict[str, str]:
    # Envelopes do not count, because signing adds them later.
    listed = (path for path in list_files(folder) if _is_plain(path) and path.name not in {SUMS, ENVELOPE})
    digests = {}
    for path in listed:
        try:
            require_size(path)
        except OSError as error:
            raise _complain(folder, f"{path.name}: {error.strerror}") from error
        digests[path.name] = digest.digest_file(path)
    return digests


def _is_plain(path: Path) -> bool:
    """Return whether a path is a regular file. A link is not: its target may change later."""
    return path.is_file() and not path.is_symlink()


def _complain(folder: Path, why: str) -> IntegrityError:
    return IntegrityError(f"{folder.name} has changed since it was made", why=why, remedy=REMEDY)
