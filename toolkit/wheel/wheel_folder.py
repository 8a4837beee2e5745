"""Finds, reads and checks the folder of a wheel: one wheel, its records, and ``SHA256SUMS``."""

import re
from dataclasses import dataclass
from pathlib import Path

from toolkit import digest, files, manifest
from toolkit.errors import BuildError, IntegrityError
from toolkit.manifest import Manifest
from toolkit.signing import is_envelope
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


def find(plan: WheelPlan, dist: Path) -> FinishedWheel | None:
    """Return the finished wheel of a plan in ``dist``, if its record names the plan."""
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


def write_sums(folder: Path) -> dict[str, str]:
    digests = _digest_files(folder)
    lines = [f"{value.removeprefix('sha256:')}  {name}\n" for name, value in sorted(digests.items())]
    files.write_atomically(folder / SUMS, "".join(lines))
    return digests


def check_sums(folder: Path) -> dict[str, str]:
    """Check a folder against its checksums; return each file's digest. Raises IntegrityError if they do not match."""
    listed = _read_sums(folder)
    digests = _digest_files(folder)
    strange = {path.name for path in folder.iterdir() if not _is_plain(path)}
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
        raise IntegrityError(
            f"{folder} has no readable {SUMS}", why=str(error), remedy="build the wheel again"
        ) from error
    listed = {}
    for line in lines:
        match = _LINE.fullmatch(line)
        if match is None:
            raise _complain(folder, f"{SUMS} has a line that is no sum: {line[:80]!r}")
        listed[match[2]] = f"sha256:{match[1]}"
    return listed


def _digest_files(folder: Path) -> dict[str, str]:
    # Envelopes do not count, because signing adds them later.
    listed = (path for path in folder.iterdir() if _is_plain(path) and path.name != SUMS and not is_envelope(path.name))
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
    return IntegrityError(f"{folder.name} has changed since it was made", why=why, remedy="build the wheel again")
