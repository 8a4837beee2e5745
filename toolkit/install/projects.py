"""Knows the programs that keep an environment for a project, and would remove what is installed beside their lock."""

import os
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from toolkit.base.errors import UsageError
from toolkit.engine.uv import Uv
from toolkit.install.resolution import NVIDIA, Package


@dataclass(frozen=True)
class Manager:
    name: str
    lock: str  # a file in the project's folder
    sync: str  # the command that makes the environment fit the lock
    keep: str  # what keeps TensorFlow there
    add: str = ""  # the command that writes packages into the project; empty: a person does


UV: Final = Manager(
    "uv", "uv.lock", "uv sync", "`toolkit install --pyproject .` there writes it into the project", "uv add"
)
_SAYS: Final = "`toolkit install --pyproject .` there says what to type"
MANAGERS: Final = (
    UV,
    Manager("Poetry", "poetry.lock", "poetry sync", _SAYS, "poetry add"),
    Manager("PDM", "pdm.lock", "pdm sync --clean", _SAYS, "pdm add"),
    Manager("pixi", "pixi.lock", "pixi install", "docs/install.md has the lines for its file"),
    Manager(
        "pip-tools",
        "requirements.in",
        "pip-sync",
        "write `-r tensorflow.txt` there, a file that `toolkit install --requirements tensorflow.txt` makes",
    ),
)


def _find(folder: Path) -> Manager | None:
    return next((manager for manager in MANAGERS if (folder / manager.lock).is_file()), None)


def describe(folders: Iterable[Path]) -> Iterator[str]:
    """Yield what to know about the first of these folders that has a project, if there is one."""
    for folder in folders:
        if manager := _find(folder):
            removes = f"whose `{manager.sync}` removes what is not in {manager.lock}"
            yield f"{folder} is a project of {manager.name}, {removes}: {manager.keep}"
            return


def find(folder: Path) -> Manager:
    """Return the program that keeps a project; that is uv if there is no lock yet.

    Raises UsageError if there is no project, or if its program has no command that adds a wheel.
    """
    manager = _find(folder) or UV
    if not manager.add or not (folder / "pyproject.toml").is_file():
        raise UsageError(
            f"{folder} is no project of uv, Poetry or PDM",
            why="there is no pyproject.toml" if manager.add else f"it is one of {manager.name}",
            remedy="name the folder of a project" if manager.add else manager.keep,
        )
    return manager


def write(manager: Manager, folder: Path, packages: Sequence[Package], uv: Uv) -> tuple[list[str], str]:
    """Let uv write TensorFlow and NVIDIA's libraries into a project of its own. Another one is left to the user.

    Return which files were written, and what to type next. A wheel is named by its path from the project's folder.
    Raises BuildError if uv does not accept the project.
    """
    wanted = [package for package in packages if package.is_tensorflow or package.name.startswith(NVIDIA)]
    texts = [
        f"./{os.path.relpath(package.wheel, folder)}" if package.wheel else f"{package.name}=={package.version}"
        for package in wanted
    ]
    if manager is not UV:
        return [], f"cd {shlex.quote(str(folder))} && {manager.add} {shlex.join(texts)}"
    uv.run("add", "--frozen", *texts, project=folder)
    return [str(folder / "pyproject.toml")], f"uv sync --project {shlex.quote(str(folder))}"
