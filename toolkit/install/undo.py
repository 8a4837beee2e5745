"""Keeps what an installation replaces in an environment, and brings exactly that back.

The files that are replaced or removed get a second name (a hard link) in a folder beside the packages. A record says
which they are, and which files come; it has the mark of this user, so that nobody else's is carried out. To bring back
what was there, the new files are removed and the old ones linked back. That can be done twice, so a command that is
killed is completed by the next one: it brings back what was there, and begins again.
"""

import errno
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final, Literal

from toolkit.base import files, seals
from toolkit.base.errors import PreflightError
from toolkit.base.interpreters import Interpreter
from toolkit.install.installed import Installed, list_installed

FOLDER: Final = ".toolkit-before"
"""Beside the folder of packages."""

_RECORD: Final = "record.json"
_PURPOSE: Final = "what an installation has replaced"


@dataclass(frozen=True, kw_only=True)
class Before:
    """What was there before an installation. Paths are as RECORD has them, seen from the folder of packages."""

    state: Literal["changing", "done"]
    environment: str  # its folder of packages, and the inode of that
    added: Sequence[str]  # files that the installation brings
    saved: Sequence[str]  # files that it replaces or removes; each is kept under its number here
    packages: Mapping[str, str]  # versions of what it brings, by name


def find(python: Interpreter) -> Before | None:
    """Return the record of the last installation into an environment, if this user has made it there."""
    value = files.read_json(_locate(python) / _RECORD)
    if not isinstance(value, dict) or not seals.holds(_PURPOSE, value.get("before"), value.get("mark")):
        return None
    found = Before(**value["before"])
    return found if found.environment == _identify(python) else None


def save(
    python: Interpreter, new: Mapping[str, Installed], old: Iterable[Installed], notes: Iterable[str] = ()
) -> None:
    """Keep what an installation will replace: the files of ``old``, and those that lie where ``new`` has files.

    ``notes``: further files that it writes.

    Raises PreflightError if a file cannot be kept, or lies outside of the environment.
    """
    folder = _locate(python)
    shutil.rmtree(folder, ignore_errors=True)
    added = sorted({path for package in new.values() for path in package.files} | set(notes))
    replaced = sorted({path for package in old for path in package.files} | set(added))
    saved = [path for path in replaced if (place := _place(python, path)).is_file() or place.is_symlink()]
    seals.make_key()
    try:
        (folder / "files").mkdir(parents=True)
        for number, path in enumerate(saved):
            _link(_place(python, path), folder / "files" / str(number))
    except OSError as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise PreflightError(
            f"what is in {python.packages} cannot be kept for `--undo`",
            why=error.strerror or str(error),
            remedy="free space there, or install into an environment of its own: --into DIR",
        ) from error
    before = Before(
        state="changing",
        environment=_identify(python),
        added=added,
        saved=saved,
        packages={name: item.version for name, item in new.items()},
    )
    _write(python, before)


def finish(python: Interpreter) -> None:
    """Say that the installation is complete."""
    before = find(python)
    if before:
        _write(python, replace(before, state="done"))


def recover(python: Interpreter) -> bool:
    """Bring back what was there if an installation was cut off in its middle. Return whether there was one."""
    before = find(python)
    if before is None or before.state == "done":
        return False
    _restore(python, before)
    return True


def revert(python: Interpreter, before: Before) -> None:
    """Bring back what was there before a complete installation, or before one that was cut off.

    Raises PreflightError if another program has changed since what the installation brought, or if it fails.
    """
    if before.state == "done":
        _require_unchanged(python, before)
        before = replace(before, state="changing")
        _write(python, before)
    _restore(python, before)


def _require_unchanged(python: Interpreter, before: Before) -> None:
    installed = list_installed(python)
    other = [
        f"{name} is {installed[name].version if name in installed else 'gone'}, was {version}"
        for name, version in sorted(before.packages.items())
        if name not in installed or installed[name].version.partition("+")[0] != version.partition("+")[0]
    ]
    if other:
        raise PreflightError(
            "nothing was undone: packages of the installation were changed since",
            why="; ".join(other[:5]),
            remedy="install those versions again, or make the environment anew",
        )


def _restore(python: Interpreter, before: Before) -> None:
    """Remove what an installation brought, and put back what it replaced. Raises PreflightError if that fails."""
    folder = _locate(python)
    try:
        keep = set(before.saved)
        parents = set()
        for path in before.added:
            place = _place(python, path)
            parents.add(place.parent)
            if path not in keep:
                place.unlink(missing_ok=True)
            for compiled in place.parent.glob(f"__pycache__/{place.stem}.*.pyc") if place.suffix == ".py" else ():
                compiled.unlink(missing_ok=True)
        for number, path in enumerate(before.saved):
            _put_back(folder / "files" / str(number), _place(python, path))
        for parent in sorted(parents, key=lambda each: len(each.parts), reverse=True):
            _prune(parent, python.packages if parent.is_relative_to(python.packages) else python.prefix)
        (folder / _RECORD).unlink()
        shutil.rmtree(folder, ignore_errors=True)
    except OSError as error:
        raise PreflightError(
            f"what was in {python.packages} is not all back yet",
            why=str(error),
            remedy="correct that, and run the same command again",
        ) from error


def _put_back(kept: Path, place: Path) -> None:
    with suppress(OSError):
        if place.samefile(kept):
            return
    place.parent.mkdir(parents=True, exist_ok=True)
    new = place.with_name(f".{place.name}.toolkit")
    new.unlink(missing_ok=True)
    _link(kept, new)
    new.replace(place)


def _prune(folder: Path, top: Path) -> None:
    """Remove folders that are empty now, up to the folder of packages."""
    with suppress(OSError):
        while folder.is_relative_to(top) and folder != top:
            with suppress(FileNotFoundError):
                (folder / "__pycache__").rmdir()
            folder.rmdir()
            folder = folder.parent


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise
        shutil.copy2(source, target, follow_symlinks=False)  # the file system has no hard links, or forbids this one


def _write(python: Interpreter, before: Before) -> None:
    value = asdict(before)
    record = {"before": value, "mark": seals.mark(_PURPOSE, value)}
    files.write_json(_locate(python) / _RECORD, record)


def _locate(python: Interpreter) -> Path:
    return python.packages.parent / FOLDER


def _identify(python: Interpreter) -> str:
    return f"{python.packages.resolve()} {python.packages.stat().st_ino}"


def _place(python: Interpreter, path: str) -> Path:
    """Return the place of a file of a package. Raises PreflightError if that is outside of the environment."""
    place = Path(os.path.normpath(python.packages / path))
    if not place.is_relative_to(python.prefix):
        raise PreflightError(
            f"a package has a file outside of {python.prefix}",
            why=path,
            remedy="remove that package, or install into an environment of its own: --into DIR",
        )
    return place
