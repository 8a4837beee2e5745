"""Finds the environment that TensorFlow is to be installed into, or decides how a new one is made."""

import os
import pwd
import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from toolkit.base import interpreters
from toolkit.base.errors import PreflightError, UnsupportedError, UsageError
from toolkit.base.interpreters import Interpreter
from toolkit.engine.uv import Uv
from toolkit.versions import numbers


@dataclass(frozen=True, kw_only=True)
class Target:
    folder: Path
    python: Interpreter  # that of the environment; for a new one, that it is made with
    kind: Literal["venv", "conda", "system"]
    new: bool = False

    @property
    def program(self) -> Path:
        """The Python to call once TensorFlow is installed."""
        return self.folder / "bin" / "python" if self.new else self.python.path


def find(into: Path | None, variables: Mapping[str, str] = os.environ, *, system: bool = False) -> Target | None:
    """Return the environment of ``--into``, or the active one; None if ``--into`` names a folder that is to be made.

    ``system``: a Python of the user's own that is in no environment will do too, such as that of an image or of pyenv;
    without ``--into`` it is the first one in PATH.

    Raises UsageError if there is no environment or the folder holds something else. Raises PreflightError if it is the
    Python of the system, belongs to another user, or does not run.
    """
    if system:
        return _examine_own(into, variables)
    if into is not None:
        folder = Path(os.path.abspath(into.expanduser()))  # noqa: PTH100 - a link in the path stays one
        if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
            return None
        if not (folder / "bin").is_dir():
            raise UsageError(
                f"{into} is no environment, and it is not empty",
                why=f"there is no {folder / 'bin' / 'python'}",
                remedy="name an environment, or a folder that does not exist yet",
            )
        return _examine(folder)
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        if variables.get(name):
            return _examine(Path(variables[name]).absolute())
    raise UsageError(
        "no environment is active, and the Python of the system is left alone",
        why="neither VIRTUAL_ENV nor CONDA_PREFIX is set",
        remedy="name a folder for a new environment, such as `--into tensorflow-env`, or activate yours first; in an "
        "image or a job of CI, where the Python is your own, give --system",
    )


def _examine_own(into: Path | None, variables: Mapping[str, str]) -> Target:
    """Return a Python that is in no environment, if no package manager keeps its packages."""
    program = interpreters.find(into) if into else shutil.which("python3", path=variables.get("PATH"))
    if program is None:
        raise UsageError("there is no python3 in PATH", remedy="name the folder of your Python with --into")
    python = interpreters.ask(Path(program))
    if python.managed:
        raise PreflightError(
            f"{python.path} is kept by the package manager of the system, and left alone",
            why="it has a file EXTERNALLY-MANAGED (PEP 668)",
            remedy="name a folder for a new environment, such as `--into tensorflow-env`",
        )
    if python.is_virtual or python.is_conda:
        raise UsageError(
            f"{python.path} is the Python of an environment",
            remedy="leave out --system: an active environment is taken without it",
        )
    _require_own(python.packages)
    return Target(folder=python.prefix, python=python, kind="system")


def find_active(into: Path | None) -> Target | None:
    """Return the environment of ``--into``, or the active one; None if there is neither. It need not be changeable."""
    with suppress(UsageError):
        return find(into)
    return None


def _examine(folder: Path) -> Target:
    python = interpreters.ask(interpreters.find(folder))
    if not python.is_virtual and not python.is_conda:
        raise PreflightError(
            f"{folder} is the Python of the system, which is left alone",
            why="its package manager expects to change its packages alone" if python.managed else "",
            remedy="name a folder for a new environment, such as `--into tensorflow-env`"
            + ("" if python.managed else "; if this Python is your own, give --system"),
        )
    if python.prefix != folder and python.prefix.resolve() != folder.resolve():
        raise PreflightError(
            f"the Python in {folder} belongs to another environment",
            why=f"it says that its environment is {python.prefix}",
            remedy="make the environment again: it may have been moved or copied",
        )
    if python.is_conda and any((folder / name).is_dir() for name in ("condabin", "envs")):
        raise PreflightError(
            f"{folder} is the base environment of conda, which is left alone",
            why="conda itself runs in it",
            remedy="make an environment of your own and activate it: conda create --name tensorflow python=3.12",
        )
    if python.packages.resolve() != python.compiled.resolve():
        raise PreflightError(
            f"{folder} has two folders of packages",
            why=f"they are {python.packages} and {python.compiled}",
            remedy="name a folder for a new environment, such as `--into tensorflow-env`",
        )
    _require_own(python.packages)
    return Target(folder=folder, python=python, kind="venv" if python.is_virtual else "conda")


def _require_own(packages: Path) -> None:
    """Raise PreflightError if this user may not change an environment, or would leave files of another owner there."""
    try:
        owner = packages.stat().st_uid
    except OSError as error:
        raise PreflightError(
            f"{packages} cannot be read", why=error.strerror or str(error), remedy="make the environment again"
        ) from error
    if owner != os.geteuid():
        name = str(owner)
        with suppress(KeyError):
            name = pwd.getpwuid(owner).pw_name
        raise PreflightError(
            f"{packages} belongs to another user, {name}",
            remedy="install as this user, or name a folder for a new environment: --into DIR",
        )
    for folder in (packages.parent, packages.parents[2] / "bin"):
        if folder.exists() and not os.access(folder, os.W_OK):
            raise PreflightError(f"cannot write {folder}", remedy="name a folder for a new environment: --into DIR")


def plan_new(folder: Path, python: Interpreter) -> Target:
    return Target(folder=folder.expanduser().absolute(), python=python, kind="venv", new=True)


def choose_python(pythons: Sequence[str], asked: str = "") -> Interpreter:
    """Return a Python for a new environment: that asked for, else this program's, else the newest, else one by uv.

    ``pythons``: the versions ``X.Y`` for which there is a wheel. Raises UnsupportedError if there is no wheel for the
    Python that was asked for, and BuildError if this machine has none of these versions and uv cannot fetch one.
    """
    if asked and asked not in pythons:
        raise UnsupportedError(
            f"there is no set of packages for Python {asked}",
            why=f"there are sets for {', '.join(pythons)}",
            remedy=f"--into DIR --python {pythons[-1]} makes a new environment; uv fetches that Python if need be",
        )
    own_version = f"{sys.version_info.major}.{sys.version_info.minor}"
    order = sorted(pythons, key=lambda version: (version == own_version, numbers.parse(version)), reverse=True)
    for version in [asked] if asked else order:
        path = interpreters.search(version)
        with suppress(PreflightError):
            if path and (python := interpreters.ask(path)).minor == version:
                return python
    wanted = asked or pythons[-1]
    uv = Uv()
    uv.run("python", "install", wanted)
    return interpreters.ask(Path(uv.run("python", "find", "--no-project", "--managed-python", wanted).splitlines()[-1]))
