"""Installs packages into an environment, or makes a new one with them.

Nothing of an environment is touched before everything is downloaded and checked. The change itself takes seconds.
Whatever ends the command in them, the same command brings back what was there and completes the work.
"""

import fcntl
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from toolkit.base import digest, files, interpreters, project, seals
from toolkit.base.console import Console
from toolkit.base.errors import PreflightError
from toolkit.base.interpreters import Interpreter
from toolkit.engine.local import require_space
from toolkit.engine.uv import Downloads, Uv
from toolkit.graft import search_paths
from toolkit.graft.search_paths import NOTE
from toolkit.install import undo
from toolkit.install.changes import Changes, compare, require_no_overlap
from toolkit.install.installed import Installed, list_installed
from toolkit.install.resolution import NVIDIA, Package
from toolkit.install.target import Target
from toolkit.records import own_environment
from train.system import signals
from train.system.progress import Work

NEEDED_BYTES: Final = 1 << 30
"""Free disk for the download and the files of a library of NVIDIA. All else needs three times as much."""

SEED: Final = "docker/requirements/pip.txt"
"""The pip that a new environment gets for its owner."""


_OPTIONS: Final = ("--no-deps", "--only-binary", ":all:", "--require-hashes", "--reinstall", "-r")


@dataclass(frozen=True, kw_only=True)
class Installation:
    target: Target
    packages: tuple[Package, ...]  # all that TensorFlow needs
    changes: Changes  # what they change in the environment
    uv: Uv

    @property
    def has_gpu_libraries(self) -> bool:
        return any(package.name.startswith(NVIDIA) for package in self.packages)

    @property
    def wheel(self) -> Mapping[str, str] | None:
        """How a record names the wheel of its TensorFlow, if that is the user's own."""
        own = next((package for package in self.packages if package.wheel), None)
        return {"kind": "wheel", "name": own.wheel.name, "digest": own.digest} if own and own.wheel else None

    @property
    def constraint(self) -> str:
        """The line of a constraints file by which later installations leave this TensorFlow alone."""
        return next(f"{package.name}=={package.version}" for package in self.packages if package.is_tensorflow)


def recover(target: Target, console: Console) -> None:
    """Bring back what was there if an installation into an environment was cut off. Plan only after this.

    Raises PreflightError if another command changes the environment, or if that fails.
    """
    with locking(target.folder):
        if undo.recover(target.python):
            console.heading("undo", "an installation was cut off here: what was there before is back")
        files.sweep(target.python.packages.parent)


def install(what: Installation, console: Console) -> None:
    """Carry out what was planned.

    Raises PreflightError if the disk is full or another command changed the environment, BuildError if uv failed,
    IntegrityError if a package has another hash, and UnsupportedError if two packages have the same files. The
    environment is then as before.
    """
    if what.changes.wanted:
        libraries = sum(package.name.startswith(NVIDIA) for package in what.changes.wanted)
        require_space(what.target.folder, NEEDED_BYTES * (3 + libraries), remedy="--into DIR")
    if what.target.new:
        _make(what, console)
        return
    with locking(what.target.folder) as lock:
        python = what.target.python
        installed = list_installed(python)
        if undo.recover(python) or compare(what.packages, installed) != what.changes:
            raise PreflightError(
                f"{what.target.folder} was changed meanwhile, and is left as it is",
                why="another program has installed or removed packages there",
                remedy="run the command again",
            )
        correct = what.has_gpu_libraries and search_paths.needs_repair(python.packages)
        if what.changes.wanted or what.changes.removed or correct:
            _change(what, installed, lock, console)


def _make(what: Installation, console: Console) -> None:
    folder = what.target.folder
    files.require_writable(folder.parent)
    with files.stage(folder.parent, _name(folder)) as stage:
        new = stage.path / folder.name
        made = _fill(what, new, stage, console)
        what.uv.run("pip", "install", "--python", made.path, "--require-hashes", "-r", project.locate(SEED))
        if what.has_gpu_libraries:
            repair(made.packages, console)
        seals.make_key()
        own_environment.write(new, what.wheel)
        try:
            new.rename(folder)
        except OSError as error:
            raise PreflightError(
                f"the new environment cannot become {folder}",
                why=error.strerror or str(error),
                remedy="name another folder: --into DIR",
            ) from error


def _change(what: Installation, installed: dict[str, Installed], lock: int, console: Console) -> None:
    """Keep what is replaced, replace it, and correct the TensorFlow that is there then. What fails is undone."""
    python, changes = what.target.python, what.changes
    gone = {change.name for change in changes.changed}
    stay = {name: package for name, package in installed.items() if name not in gone}
    with files.stage(python.packages.parent, _name(what.target.folder)) as stage:
        # What is downloaded and unpacked here is in uv's cache then.
        new = list_installed(_fill(what, stage.path / "env", stage, console)) if changes.wanted else {}
        require_no_overlap(new, stay)
        ours = [item for item in {**stay, **new}.values() if item.tensorflow and what.has_gpu_libraries]
        notes = [
            name.replace("/RECORD", f"/{NOTE}") for item in ours for name in item.files if name.endswith("/RECORD")
        ]
        notes += [
            os.path.relpath(python.prefix / own_environment.FOLDER / name, python.packages)
            for name in own_environment.FILES
        ]
        old = [installed[name] for name in gone] + [item for item in ours if item.name not in new]
        undo.save(python, new, old, notes)
        try:
            with signals.deferring(), console.follow("install") as status:
                status.show(Work(f"changing {what.target.folder}"))
                place, locks = ("--python", python.path), (stage.lock, lock)
                if changes.removed:
                    what.uv.run("pip", "uninstall", *place, *changes.removed, locks=locks)
                if changes.wanted:
                    what.uv.run("pip", "install", "--offline", *place, *_OPTIONS, _write(what, stage), locks=locks)
                if ours:
                    repair(python.packages, console)
                status.show(Work("reading what is there now"))
                own_environment.write(python.prefix, what.wheel)
                undo.finish(python)
        except BaseException:
            undo.recover(python)
            raise


def _fill(what: Installation, folder: Path, stage: files.Staging, console: Console) -> Interpreter:
    """Make a virtual environment with what is to be installed. It can be moved."""
    what.uv.run("venv", "--no-project", "--relocatable", "--python", what.target.python.path, folder)
    made = interpreters.ask(interpreters.find(folder))
    with console.follow("install") as status:
        show = Downloads(status).show
        what.uv.run(
            "pip", "install", "--python", made.path, *_OPTIONS, _write(what, stage), show=show, locks=(stage.lock,)
        )
    return made


def _write(what: Installation, stage: files.Staging) -> Path:
    requirements = stage.path / "requirements.txt"
    files.write_atomically(requirements, "".join(f"{package.text}\n" for package in what.changes.wanted))
    return requirements


def revert(target: Target, console: Console) -> None:
    """Bring back what was in an environment before the last installation. Raises PreflightError if it is not known."""
    python = target.python
    with locking(target.folder):
        before = undo.find(python)
        if before is None:
            raise PreflightError(
                f"there is nothing to undo in {target.folder}",
                why="no installation of yours has changed packages there",
                remedy="an environment that `toolkit install` has made is removed with its folder",
            )
        with signals.deferring():
            undo.revert(python, before)
    console.heading("undo", f"{target.folder} is as it was before the installation")


def write_requirements(path: Path, packages: Sequence[Package], title: str) -> None:
    """Write a file for ``pip install -r``. A wheel is named by its path from the folder of the file.

    Raises PreflightError if the file cannot be written.
    """
    lines = [f"# {title}"]
    folder = path.absolute().parent
    for package in packages:
        if package.wheel:
            place = os.path.relpath(package.wheel, folder)
            lines.append(f"# pip looks for {place} from the folder in which it is called")
            lines.append(f"./{place} \\\n    --hash={package.digest}")
        else:
            lines.append(package.text)
    files.write_atomically(path, "\n".join(lines) + "\n")


def repair(packages: Path, console: Console) -> None:
    """Let an installed TensorFlow find NVIDIA's libraries without any variable, and say what was changed for that."""
    for library in search_paths.repair_installed(packages):
        if library.added:
            console.heading("repair", f"{library.name} finds {', '.join(library.added)} without LD_LIBRARY_PATH now")
        if library.impossible:
            console.say(f"{library.name} does not find {', '.join(library.impossible)}: set LD_LIBRARY_PATH")


def foretell_repair(packages: Path, console: Console) -> None:
    """Say what :func:`repair` would change."""
    for library in search_paths.list_repairs(packages):
        if library.added:
            console.heading("repair", f"{library.name} would be corrected: it does not find {', '.join(library.added)}")


@contextmanager
def locking(folder: Path) -> Iterator[int]:
    """Hold the lock of an environment while it is changed, and yield its descriptor, which uv inherits.

    A uv that outlives its killed parent then keeps the next command away. Raises PreflightError if another command
    holds the lock.
    """
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with suppress(OSError):  # on a file system without locks, nothing tells commands apart
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise PreflightError(
                    f"another command changes {folder}", remedy="run this one again when that has ended"
                ) from None
        yield handle
    finally:
        os.close(handle)


def _name(folder: Path) -> str:
    return digest.shorten(digest.digest_value(["install", str(folder)]))
