"""Changes an environment at once, or not at all.

Packages are installed into a copy of the folder of packages, which has the same files under second names (hard links).
The copy then takes the place of the folder in one step. Whatever ends the program before leaves the environment as it
was. What packages have outside of that folder, such as the programs in ``bin``, is moved file by file just afterwards.
A list of these moves is written first, so that the next command finishes what a kill has cut off there.
"""

import base64
import csv
import errno
import fcntl
import hashlib
import io
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from toolkit import files
from toolkit.errors import PreflightError
from toolkit.interpreters import Interpreter
from train.system import signals

JOURNAL: Final = "commit.json"
_SCHEMA: Final = 1
_TELLING: Final = (".dist-info", ".egg-info", ".pth")


@dataclass(frozen=True, kw_only=True)
class Copy:
    """A copy of an environment that has the same packages, in a folder beside them."""

    prefix: Path  # its folder
    original: Path  # that of the environment
    packages: Path  # its folder of packages, below ``prefix``
    state: frozenset[tuple[str, int]]  # what the folder of packages held when it was copied

    @property
    def python(self) -> Path:
        return self.prefix / "bin" / "python"


def copy(python: Interpreter, folder: Path, stage: Path) -> Copy:
    """Copy the packages of an environment. Raises PreflightError if a file cannot be read or the disk is full."""
    prefix = stage / "env"
    inside = python.packages.relative_to(python.prefix)
    packages = prefix / inside
    try:
        packages.parent.mkdir(parents=True)
        (prefix / "bin").mkdir()
        (prefix / "bin" / "python").symlink_to(python.path.resolve())
        if (python.prefix / "lib64").is_symlink():
            (prefix / "lib64").symlink_to("lib")
        settings = python.prefix / "pyvenv.cfg"
        home = f"home = {python.path.resolve().parent}\ninclude-system-site-packages = false\n"
        (prefix / "pyvenv.cfg").write_text(settings.read_text() if settings.is_file() else home)
        state = _read_state(python.packages)
        _copy_tree(python.packages, packages, top=True)
    except OSError as error:
        raise PreflightError(
            f"the packages of {folder} cannot be copied",
            why=str(error),
            remedy="free space on the disk where it lies",
        ) from error
    return Copy(prefix=prefix, original=folder, packages=packages, state=state)


def _read_state(packages: Path) -> frozenset[tuple[str, int]]:
    """Return what tells whether packages were installed or removed: all names, and the times of their metadata.

    The times of other folders do not, because the first import of a package makes a folder for bytecode in it.
    """
    with os.scandir(packages) as entries:
        return frozenset(
            (entry.name, entry.stat(follow_symlinks=False).st_mtime_ns if entry.name.endswith(_TELLING) else 0)
            for entry in entries
            if entry.name != "__pycache__"
        )


def _copy_tree(source: Path, target: Path, *, top: bool = False) -> None:
    """Give each file of a folder a second name in another one.

    A file at the top is copied: there are small ones that installers change in their place, such as ``.pth`` files.
    """
    target.mkdir()
    with os.scandir(source) as entries:
        for entry in entries:
            there = target / entry.name
            if entry.is_dir(follow_symlinks=False):
                _copy_tree(Path(entry.path), there)
            elif entry.is_symlink():
                there.symlink_to(Path(entry.path).readlink())
            elif top:
                shutil.copy2(entry.path, there)
            else:
                _link(entry.path, there)
    shutil.copystat(source, target)


def _link(source: str, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise
        shutil.copy2(source, target)  # the file system has no hard links, or forbids this one


def relocate(prefix: Path, final: Path, packages: Path) -> None:
    """Let the programs and settings of an environment name the folder in which it will lie.

    Raises PreflightError if the disk is full.
    """
    before, after = os.fsencode(prefix), os.fsencode(final)
    changed = {}
    for path in [prefix / "pyvenv.cfg", *sorted((prefix / "bin").iterdir())]:
        if not path.is_file() or path.is_symlink():
            continue
        content = path.read_bytes()
        if before in content:
            mode = path.stat().st_mode
            files.write_atomically(path, content.replace(before, after))
            files.set_mode(path, mode & 0o7777)
            changed[os.path.normpath(path)] = path
    _record(packages, changed.keys())


def _record(packages: Path, changed: Iterable[str]) -> None:
    """Write the new hashes of changed files into the lists (RECORD) of their packages."""
    wanted = {os.path.relpath(path, packages) for path in changed}
    for path in packages.glob("*.dist-info/RECORD"):
        rows = list(_read_rows(path))
        touched = [row for row in rows if os.path.normpath(row[0]) in wanted and row[1]]
        for row in touched:
            content = (packages / row[0]).read_bytes()
            value = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
            row[1:] = [f"sha256={value}", str(len(content))]
        if touched:
            text = io.StringIO()
            csv.writer(text, lineterminator="\n").writerows(rows)
            files.write_atomically(path, text.getvalue())


def _read_rows(record: Path) -> Iterator[list[str]]:
    with suppress(OSError, csv.Error, UnicodeDecodeError):
        yield from (row for row in csv.reader(io.StringIO(record.read_text())) if len(row) == 3)


def commit(copied: Copy, python: Interpreter, stage: Path) -> None:
    """Let a copy take the place of the environment's packages.

    Raises PreflightError if the environment was changed meanwhile or its file system cannot do that. The environment is
    then as before.
    """
    if _read_state(python.packages) != copied.state:
        raise PreflightError(
            f"{copied.original} was changed meanwhile, and is left as it is",
            why="another program has installed or removed packages there",
            remedy="run the command again when nothing else changes it",
        )
    journal = {
        "schema": _SCHEMA,
        "packages": str(python.packages.relative_to(python.prefix)),
        "inode": copied.packages.stat().st_ino,
        "files": [str(path.relative_to(copied.prefix)) for path in _list_outside(copied)],
        "removed": sorted(_list_names(python.packages, python.prefix) - _list_names(copied.packages, copied.prefix)),
    }
    with signals.deferring():
        files.write_json(stage / JOURNAL, journal)
        _finish(stage, python.prefix)


def recover(python: Interpreter) -> None:
    """Finish what a killed command has begun to move in an environment, and remove what it has left there.

    The folder of packages of the environment may have no name at the moment. Raises PreflightError if a file cannot be
    moved.
    """
    above = python.packages.parent
    if any(files.is_abandoned(stage) for stage in files.find_staging(above)):
        with locking(python.prefix):
            for stage in files.find_staging(above):
                if files.is_abandoned(stage):
                    _finish(stage, python.prefix)
            files.sweep(above)


@contextmanager
def locking(folder: Path) -> Iterator[None]:
    """Hold the lock of an environment while it is changed. Raises PreflightError if another command holds it."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with suppress(OSError):  # on a file system without locks, nothing tells commands apart
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise PreflightError(
                    f"another command changes {folder}", remedy="run this one again when that has ended"
                ) from None
        yield
    finally:
        os.close(handle)


def _finish(stage: Path, prefix: Path) -> None:
    """Do what a list of moves says, as far as it is not done."""
    match files.read_json(stage / JOURNAL):
        case {"packages": str(inside), "inode": int(inode), "files": list(moved), "removed": list(removed)}:
            pass
        case _:
            return
    packages = prefix / inside
    try:
        if not packages.exists() or packages.stat().st_ino != inode:
            files.take_place(stage / "env" / inside, packages, stage / "before")
    except OSError as error:
        (stage / JOURNAL).unlink()
        raise PreflightError(
            f"{packages} cannot be replaced, and is as it was before",
            why=f"{error.strerror or error}; in a container, folders of the image cannot be renamed",
            remedy="make a new environment with --into DIR, or write a file for pip with --requirements FILE",
        ) from error
    try:
        for name in moved:
            source, target = stage / "env" / name, prefix / name
            if source.exists() or source.is_symlink():
                target.parent.mkdir(parents=True, exist_ok=True)
                source.replace(target)
        for name in removed:
            (prefix / name).unlink(missing_ok=True)
        (stage / JOURNAL).unlink()
    except OSError as error:
        raise PreflightError(
            f"TensorFlow is installed in {prefix}, and a program beside it is not",
            why=str(error),
            remedy="correct that, and run the command again",
        ) from error


def _list_outside(copied: Copy) -> list[Path]:
    """Return the files that installed packages have outside of the folder of packages."""
    paths = []
    for folder, folders, names in os.walk(copied.prefix):
        here = Path(folder)
        folders[:] = [name for name in folders if here / name != copied.packages and not (here / name).is_symlink()]
        paths += [here / name for name in names]
    made_by_venv = {copied.prefix / "pyvenv.cfg", copied.python}
    return sorted(path for path in paths if path not in made_by_venv)


def _list_names(packages: Path, prefix: Path) -> set[str]:
    """Return the files outside of a folder of packages that its packages list, seen from ``prefix``."""
    above = ("..",) * len(packages.relative_to(prefix).parts)
    outside = set()
    for record in packages.glob("*.dist-info/RECORD"):
        for name, *_ in _read_rows(record):
            parts = Path(os.path.normpath(name)).parts
            if parts[: len(above)] == above and ".." not in parts[len(above) :]:
                outside.add(str(Path(*parts[len(above) :])))
    return outside
