"""Finds the environment that TensorFlow is to be installed into, or decides how a new one is made."""

import os
import pwd
import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from toolkit.base import interpreters
from toolkit.base.errors import PreflightError, UnsupportedError, UsageError
from toolkit.base.interpreters import Interpreter
from toolkit.engine.uv import Uv
from toolkit.versions import numbers

_ACTIVE: Final = ("VIRTUAL_ENV", "CONDA_PREFIX")
_NEW: Final = "name a folder for a new environment, such as `--into tensorflow-env`"


@dataclass(frozen=True, kw_only=True)
class Target:
    folder: Path
    python: Interpreter  # that of the environment; for a new one, that it is made with
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
    if system and into is None:
        program = shutil.which("python3", path=variables.get("PATH"))
        if program is None:
            raise UsageError("there is no python3 in PATH", remedy="name the folder of your Python with --into")
        return _examine(Path(program), None, system=True)
    named = into or next((Path(variables[name]) for name in _ACTIVE if variables.get(name)), None)
    if named is None:
        raise UsageError(
            "no environment is active, and the Python of the system is left alone",
            why=f"neither {' nor '.join(_ACTIVE)} is set",
            remedy=f"{_NEW}, or activate yours first; in an image or a job of CI, where the Python is your own, "
            "give --system",
        )
    folder = Path(os.path.abspath(named.expanduser()))  # noqa: PTH100 - a link in the path stays one
    if into and not system and (not folder.exists() or (folder.is_dir() and not any(folder.iterdir()))):
        return None
    return _examine(interpreters.find(folder), folder, system=system)


def find_active(into: Path | None) -> Target | None:
    """Return the environment of ``--into``, or the active one; None if there is neither. It need not be changeable."""
    with suppress(UsageError):
        return find(into)
    return None


def _examine(program: Path, folder: Path | None, *, system: bool) -> Target:
    """Return the target of a Python, if this user may change it.

    ``folder``: that of its environment, as the user names it. Raises UsageError and PreflightError as :func:`find`.
    """
    python = interpreters.ask(program)
    inside = python.is_virtual or python.is_conda
    if system and inside:
        raise UsageError(
            f"{python.path} is the Python of an environment",
            remedy="leave out --system: an active environment is taken without it",
        )
    folder = python.prefix if system or folder is None else folder
    for wrong, what, why in (
        (
            not inside and python.managed,
            "is the Python of the system, which is left alone",
            "it has a file EXTERNALLY-MANAGED (PEP 668)",
        ),
        (
            not inside and not system,
            "is the Python of the system, which is left alone",
            "it is in no environment; if it is your own, give --system",
        ),
        (
            python.prefix.resolve() != folder.resolve(),
            "holds the Python of another environment: it may have been moved or copied",
            f"that Python says that its environment is {python.prefix}",
        ),
        (
            python.is_conda and any((folder / name).is_dir() for name in ("condabin", "envs")),
            "is the base environment of conda, which is left alone",
            "conda itself runs in it",
        ),
        (
            python.packages.resolve() != python.compiled.resolve(),
            "has two folders of packages",
            f"they are {python.packages} and {python.compiled}",
        ),
    ):
        if wrong:
            raise PreflightError(f"{folder} {what}", why=why, remedy=_NEW)
    _require_own(python.packages)
    return Target(folder=folder, python=python)


def _require_own(packages: Path) -> None:
    """Raise PreflightError if this user may not change an environment, or would leave files of another owner there."""
    try:
        owner = packages.stat().st_uid
    except OSError as error:
        raise PreflightError(f"{packages} cannot be read", why=error.strerror or str(error), remedy=_NEW) from error
    if owner != os.geteuid():
        name = str(owner)
        with suppress(KeyError):
            name = pwd.getpwuid(owner).pw_name
        raise PreflightError(f"{packages} belongs to another user, {name}", remedy=f"install as this user, or {_NEW}")
    for folder in (packages.parent, packages.parents[2] / "bin"):
        if folder.exists() and not os.access(folder, os.W_OK):
            raise PreflightError(f"cannot write {folder}", remedy=_NEW)


def plan_new(folder: Path, python: Interpreter) -> Target:
    return Target(folder=folder.expanduser().absolute(), python=python, new=True)


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
