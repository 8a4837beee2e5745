"""Finds the Python of an environment, and asks it what it is. Nothing is written there."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from toolkit.base import seals
from toolkit.base.errors import PreflightError, UsageError
from train.system.files import read_text

FOREIGN: Final = ("PYTHONHOME", "PYTHONPATH", "PYTHONPLATLIBDIR", "PYTHONPYCACHEPREFIX", "__PYVENV_LAUNCHER__")
"""Variables of the caller by which an interpreter would read other code than that of its environment."""

ANSWER_SECONDS: Final = 30

_QUESTION: Final = """
import json, os, sys, sysconfig
paths = sysconfig.get_paths()
print(json.dumps({
    "version": "%d.%d.%d" % sys.version_info[:3],
    "prefix": sys.prefix,
    "base": sys.base_prefix,
    "packages": paths["purelib"],
    "compiled": paths["platlib"],
    "managed": os.path.exists(os.path.join(paths["stdlib"], "EXTERNALLY-MANAGED")),
}))
"""
"""Runs on every Python 3."""


@dataclass(frozen=True, kw_only=True)
class Interpreter:
    path: Path
    version: str  # ``3.11.7``
    prefix: Path  # folder of its environment
    base: Path  # folder of the Python that a virtual environment was made with; else ``prefix``
    packages: Path  # site-packages; its compiled packages lie in ``compiled``, which is usually the same folder
    compiled: Path
    managed: bool  # whether the system's package manager asks others to leave its packages alone (PEP 668)

    @property
    def minor(self) -> str:
        """Its version as wheels name it, such as ``3.11``."""
        return self.version.rpartition(".")[0]

    @property
    def is_virtual(self) -> bool:
        return self.prefix != self.base

    @property
    def is_conda(self) -> bool:
        return (self.prefix / "conda-meta").is_dir()


def find(folder: Path) -> Path:
    """Return the Python of an environment's folder. Raises UsageError if there is none."""
    for name in ("python", "python3"):
        if (path := folder / "bin" / name).exists():
            return path.absolute()
    inner = folder / "venv"
    raise UsageError(
        f"there is no Python in {folder}",
        why=f"{folder / 'bin' / 'python'} does not exist" if folder.is_dir() else "there is no such folder",
        remedy=f"give {inner}"
        if (inner / "bin" / "python").exists()
        else "give the folder of a virtual environment, of a conda environment, or a prefix such as /usr",
    )


def require_own(path: Path) -> None:
    """Raise PreflightError if another user can change a Python, or what it runs by itself when it starts.

    Nothing of it is started for that.
    """
    # Whoever made the Python of this program is trusted already: on clusters that may be the keeper of its software.
    trusted = {Path(sys.executable).resolve().parent, Path(os.__file__).resolve().parent}
    for part in _list_parts(path):
        if part.parent.resolve() not in trusted and (why := seals.find_stranger(part)):
            raise PreflightError(
                f"{path} is not run",
                why=why,
                remedy=f"name an environment of your own; if all in {path.parents[1]} is yours, `chmod -R go-w` it",
            )


def _list_parts(path: Path) -> Iterator[Path]:
    """Yield what decides what a Python runs when it starts: links to it, its folders, and what these hold."""
    yield from _follow(path)
    folder = path.parents[1]
    settings = folder / "pyvenv.cfg"
    if not settings.exists() and not (folder / "conda-meta").is_dir():
        return  # a Python of the system, which root keeps
    yield from (folder, path.parent, settings)
    with suppress(OSError):  # what cannot be read is not run either
        for packages in folder.glob("lib*/python*/*-packages"):
            yield from (packages.parents[1], packages.parent, packages, *packages.iterdir())
    with suppress(OSError, ValueError):
        for line in read_text(settings).splitlines():
            name, _, home = line.partition("=")
            if name.strip().lower() == "home":  # beside it lies the library that is read
                yield from Path(home.strip()).parent.glob("lib*/python*/os.py")


def _follow(path: Path) -> Iterator[Path]:
    """Yield a path, and those to which it leads if it is a link. The kernel follows no more than 40."""
    for _ in range(40):
        yield path
        if not path.is_symlink():
            return
        path = path.parent / path.readlink()


def ask(path: Path) -> Interpreter:
    """Ask a Python for its version and folders.

    Raises PreflightError if another user can change it, it does not run, or it gives no answer.
    """
    require_own(path)
    variables = {name: value for name, value in os.environ.items() if name not in FOREIGN}
    try:
        done = subprocess.run(
            [str(path), "-I", "-B", "-c", _QUESTION],
            capture_output=True,
            text=True,
            env=variables,
            timeout=ANSWER_SECONDS,
            check=True,
        )
        answer = json.loads(done.stdout)
        return Interpreter(
            path=path,
            version=answer["version"],
            prefix=Path(answer["prefix"]),
            base=Path(answer["base"]),
            packages=Path(answer["packages"]),
            compiled=Path(answer["compiled"]),
            managed=answer["managed"],
        )
    except (OSError, subprocess.SubprocessError, ValueError, LookupError, TypeError) as error:
        why = getattr(error, "stderr", "") or str(error)
        raise PreflightError(
            f"{path} does not run",
            why=why.strip().rpartition("\n")[2],
            remedy="make the environment again: the Python that it was made with may be gone",
        ) from error


def search(version: str) -> Path | None:
    """Return a Python ``X.Y`` of this machine that virtual environments can be made with; None if there is none."""
    if version == f"{sys.version_info.major}.{sys.version_info.minor}":
        # Not the Python of a virtual environment: that one may be removed while the new environment is used.
        return Path(getattr(sys, "_base_executable", sys.executable))
    program = shutil.which(f"python{version}")
    return Path(program) if program else None
