"""Starts the helpers that read configuration where they stand, or from the caller's variables, without it.

Each has one function here, and nothing else names these programs to start them. uv has a module of its own.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from toolkit.base import seals
from toolkit.base.errors import PreflightError

_GIT: Final = (
    "--no-optional-locks",  # no file of the folder is written
    "--no-pager",
    *("-c", "core.fsmonitor=false"),
    *("-c", f"core.hooksPath={os.devnull}"),
    *("-c", "credential.interactive=false"),
)
_GIT_PROTOCOLS: Final = "file:https:ssh"
"""Others, such as ``ext``, are programs. This counts more than any configuration."""

_LOADER: Final = ("LD_PRELOAD", "LD_AUDIT", "LD_LIBRARY_PATH")
"""By these a program such as ptxas would load other code than its own."""


@dataclass(frozen=True, kw_only=True)
class Program:
    """What is started: its words, and what it gets in place of this program's variables and folder."""

    argv: tuple[str, ...]
    variables: dict[str, str] = field(default_factory=dict)
    folder: str | None = None

    def run(self, *, seconds: float | None = None) -> "subprocess.CompletedProcess[str]":
        """Run it to its end without input. Raises OSError if it cannot be started, and TimeoutExpired."""
        return subprocess.run(
            self.argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            check=False,
            env=self.variables,
            cwd=self.folder,
        )


def git(*arguments: str, folder: Path | None = None) -> Program:
    """Return git, which runs no program that the configuration of a folder names, and asks nobody.

    ``folder``: the repository that is looked at; None: there is none, and that of the current folder does not count.
    """
    own = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    own |= {"GIT_TERMINAL_PROMPT": "0", "GIT_ALLOW_PROTOCOL": _GIT_PROTOCOLS}
    if folder is None:
        return Program(argv=("git", *_GIT, *arguments), variables={**own, "GIT_DIR": os.devnull}, folder="/")
    # A missing object would be fetched by what the configuration names. Git before 2.45 knows only the second.
    own |= {"GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": "none"}
    there = ("git", *_GIT, "-C", str(folder))
    # A filter is a program, too, and it has a name of its own, so each is asked for before.
    listed = Program(argv=(*there, "config", "--null", "--name-only", "--get-regexp", r"^filter\."), variables=own).run(
        seconds=60
    )
    names = [name for name in listed.stdout.split("\0") if name]
    own |= {f"GIT_CONFIG_KEY_{number}": name for number, name in enumerate(names)}
    own |= {f"GIT_CONFIG_VALUE_{number}": "" for number in range(len(names))}
    return Program(argv=(*there, *arguments), variables={**own, "GIT_CONFIG_COUNT": str(len(names))})


def python(*arguments: str | Path, variables: dict[str, str] | None = None) -> Program:
    """Return the Python of this program, which reads no module of the current folder and no variable about Python."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return Program(argv=(sys.executable, "-I", *map(str, arguments)), variables={**own, **(variables or {})})


def docker(argv: Sequence[str]) -> Program:
    """Return the command ``docker …``, whose plugins and helpers lie in a folder that only this user can change.

    Raises PreflightError if another user can change it.
    """
    require_own_docker()
    return Program(argv=tuple(argv), variables=dict(os.environ))


def require_own_docker() -> None:
    """Raise PreflightError if another user can say which programs the client of Docker runs."""
    folder = Path(os.environ.get("DOCKER_CONFIG") or Path("~/.docker").expanduser())
    for path in (folder, folder / "config.json", folder / "cli-plugins", folder / "contexts"):
        if why := seals.find_stranger(path):
            raise PreflightError(
                f"the settings of Docker in {folder} are not used",
                why=f"{why}; they name programs that are run",
                remedy="set DOCKER_CONFIG to a folder of your own, or make this one yours",
            )


def assembler(argv: Sequence[str]) -> Program:
    """Return ptxas or another compiler of CUDA, which loads its own libraries alone."""
    return Program(argv=tuple(argv), variables={k: v for k, v in os.environ.items() if k not in _LOADER})


def require_absolute_path() -> None:
    """Leave out of PATH what is the current folder, which may be a stranger's, or is named from there."""
    places = os.environ.get("PATH", os.defpath).split(os.pathsep)
    os.environ["PATH"] = os.pathsep.join(place for place in places if Path(place).is_absolute())
