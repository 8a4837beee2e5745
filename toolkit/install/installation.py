"""Installs packages into an environment, or makes a new one with them, as one step."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from toolkit import digest, files, interpreters, processes
from toolkit.console import Console
from toolkit.errors import BuildError, PreflightError
from toolkit.install import exchange
from toolkit.install.changes import Changes, compare, list_installed
from toolkit.install.packages import NVIDIA, Package
from toolkit.install.pip import Pip
from toolkit.install.target import Target
from train.system.progress import Work

NEEDED_BYTES: Final = {"cpu": 3 << 30, "cuda": 14 << 30}
"""Free disk that an installation needs for downloads and unpacked files, with some reserve."""


VENV: Final = ("-m", "venv")
"""How Python makes a virtual environment."""


@dataclass(frozen=True, kw_only=True)
class Installation:
    target: Target
    packages: tuple[Package, ...]  # all that TensorFlow needs
    changes: Changes  # what they change in the environment
    pip: Pip

    @property
    def has_gpu_libraries(self) -> bool:
        return any(package.name.startswith(NVIDIA) for package in self.packages)


def install(what: Installation, console: Console) -> None:
    """Carry out what was planned. However it ends, the environment is as before, or has everything.

    Raises PreflightError if the disk is full or another command changed the environment, BuildError if pip failed, and
    IntegrityError if a package has another hash.
    """
    cuda = any(package.name.startswith(NVIDIA) for package in what.changes.wanted)
    _require_space(what.target, NEEDED_BYTES["cuda" if cuda else "cpu"] if what.changes.wanted else 0)
    if what.target.new:
        _make(what, console)
        return
    with exchange.locking(what.target.folder):
        python = what.target.python
        if compare(what.packages, list_installed(python), python) != what.changes:
            raise PreflightError(
                f"{what.target.folder} was changed meanwhile, and is left as it is",
                why="another program has installed or removed packages there",
                remedy="run the command again",
            )
        if what.changes.wanted or what.changes.removed:
            _change(what, console)


def _make(what: Installation, console: Console) -> None:
    folder, python = what.target.folder, what.target.python
    files.require_writable(folder.parent)
    with files.stage(folder.parent, _name(folder)) as stage:
        new = stage.path / folder.name
        _make_venv(python.path, new)
        made = interpreters.ask(interpreters.find(new))
        _fill(what, made.path, stage, console)
        if what.has_gpu_libraries:
            _mend(made.packages, console)
        exchange.relocate(new, folder, made.packages)
        try:
            new.rename(folder)
        except OSError as error:
            raise PreflightError(
                f"the new environment cannot become {folder}",
                why=error.strerror or str(error),
                remedy="name another folder: --into DIR",
            ) from error


def _change(what: Installation, console: Console) -> None:
    folder, python = what.target.folder, what.target.python
    with files.stage(python.packages.parent, _name(folder)) as stage:
        copied = exchange.copy(python, folder, stage.path)
        if what.changes.removed:
            what.pip.uninstall(copied.python, what.changes.removed, locks=(stage.lock,))
        _fill(what, copied.python, stage, console)
        if what.has_gpu_libraries and any(package.is_tensorflow for package in what.changes.wanted):
            _mend(copied.packages, console)
        exchange.relocate(copied.prefix, folder, copied.packages)
        exchange.commit(copied, python, stage.path)


def _fill(what: Installation, python: Path, stage: files.Staging, console: Console) -> None:
    wanted = what.changes.wanted
    requirements = stage.path / "requirements.txt"
    files.write_atomically(requirements, "".join(f"{package.text}\n" for package in wanted))
    with console.follow("install") as status:
        count = 0

        def show(line: str) -> None:
            nonlocal count
            count += line.startswith(("Collecting ", "Processing "))
            status.show(Work(line, count, len(wanted), "packages", unknown=True))

        options = ["--no-deps", "--require-hashes", "--force-reinstall", "-r", str(requirements)]
        what.pip.install(python, *options, show=show, locks=(stage.lock,))


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


def _mend(packages: Path, console: Console) -> None:
    """Let an installed TensorFlow find NVIDIA's libraries without any variable, and say what was changed for that."""
    from toolkit.graft import search_paths  # reads ELF, which the CPU set does not need

    for library in search_paths.repair_installed(packages):
        if library.added:
            console.heading("repair", f"{library.name} finds {', '.join(library.added)} without LD_LIBRARY_PATH now")
        if library.impossible:
            console.say(f"{library.name} does not find {', '.join(library.impossible)}: set LD_LIBRARY_PATH")


def _name(folder: Path) -> str:
    return digest.shorten(digest.digest_value(["install", str(folder)]))


def _make_venv(python: Path, folder: Path) -> None:
    argv = [str(python), "-I", *VENV, str(folder)]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with processes.starting(argv, partial(processes.stop, grace=10), **streams) as process:
        output, _ = process.communicate()
    if process.returncode:
        lines = output.strip().splitlines()[-4:]
        raise BuildError(
            f"{python} cannot make a virtual environment",
            why="it says:\n    " + "\n    ".join(lines),
            remedy="on Debian and Ubuntu, install the package python3-venv; or make one by another program and name it "
            "with --into",
        )


def _require_space(target: Target, needed: int) -> None:
    place = target.folder
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    if free < needed:
        raise PreflightError(
            f"too little disk at {place}: {free / 2**30:.1f} GiB free, {needed / 2**30:.0f} GiB needed",
            remedy="free space, or name a folder on a larger disk: --into DIR",
        )
