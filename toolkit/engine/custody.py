"""Decides whether an environment or image of the state folder is what this user made, and as it was then.

When one is made, a seal is left beside its manifest: the digest of the manifest, a fingerprint of what the manifest
lists, and the mark of this user for both. Where the fingerprint is the same, nothing has to be read again. Where it
is not, as in a copy, everything is compared with the list, and the seal is made again if that holds.
"""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from toolkit.base import digest, files, manifest, seals
from toolkit.base.errors import PreflightError

FILE: Final = "seal.json"
_PURPOSE: Final = "what was made in a state folder"


@dataclass(frozen=True, kw_only=True)
class Custody:
    """What was found of something in the state folder."""

    doubt: str = ""  # why it is not used; empty if it may be
    fingerprint: str = ""  # of what was compared with the list just now; empty if the seal was enough


def open_state(state: Path) -> None:
    """Make the state folder if it is missing. Raises PreflightError if it is read-only, or others can change it."""
    made = not state.exists()
    files.require_writable(state)
    if made:
        files.set_mode(state, 0o755)
    seals.require_own(state)


def clear(folder: Path) -> None:
    """Remove what lies where something is made. Raises PreflightError if it stays, as files of another user do."""
    if folder.is_symlink():
        folder.unlink()
    shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():
        raise PreflightError(
            f"cannot remove {folder}",
            why=seals.find_stranger(folder) or "files in it belong to another user, or are in use",
            remedy="let its owner remove it, or set TOOLKIT_STATE to another folder",
        )


def seal(folder: Path, fingerprint: str) -> None:
    """Mark what was made in a folder. Its manifest is the one that is there now. Raises PreflightError."""
    value = _describe(folder, fingerprint)
    files.write_json(folder / FILE, {**value, "mark": seals.mark(_PURPOSE, value)})


def renew(folder: Path, custody: Custody | None) -> None:
    """Seal again what was compared just now and holds, so that the next command need not read it."""
    if custody and custody.fingerprint and not custody.doubt:
        seal(folder, custody.fingerprint)


def inspect(
    folder: Path, identity: str, fingerprint: Callable[[], str], compare: Callable[[], tuple[str, str]]
) -> Custody:
    """Return whether what lies in a folder may be used.

    ``identity``: the digest that its manifest must have. ``fingerprint``: of what is there. ``compare`` reads
    everything, and returns what is not as its manifest says, else nothing, with the fingerprint of before. Raises
    PreflightError if others can read the key of this user.
    """
    record = manifest.read(folder)
    if record is None or record.digest != identity:
        return Custody(doubt="its manifest is not that of what is asked for")
    if stranger := seals.find_stranger(folder):
        return Custody(doubt=stranger)
    match files.read_json(folder / FILE):
        case {"record": str(), "state": str(state), "mark": mark} if seals.holds(
            _PURPOSE, _describe(folder, state), mark
        ):
            if fingerprint() == state:
                return Custody()
            wrong, current = compare()
            return Custody(doubt=wrong, fingerprint=current)
    return Custody(doubt="you have not made it on this machine, or its record was changed")


def holds(folder: Path, identity: str) -> bool:
    """Return whether this user has recorded in a folder what lies elsewhere and is named by its content.

    Such as an image of an engine, whose seal has its id as fingerprint. Raises PreflightError if others can read the
    key of this user.
    """
    return not inspect(folder, identity, lambda: identity, lambda: ("it is the seal of something else", "")).doubt


def _describe(folder: Path, fingerprint: str) -> dict[str, str]:
    return {"record": digest.read_file(folder / manifest.FILE), "state": fingerprint}
