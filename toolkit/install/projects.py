"""Knows the programs that keep an environment for a project, and would remove what is installed beside their lock."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from toolkit.base.errors import UsageError
from toolkit.engine.uv import Uv
from toolkit.install.resolution import NVIDIA, Package


@dataclass(frozen=True)
class Manager:
    name: str
    lock: str  # file beside pyproject.toml
    sync: str  # the command that makes the environment fit the lock
    write: str  # what keeps TensorFlow there


MANAGERS: Final = (
    Manager("uv", "uv.lock", "uv sync", "`toolkit install --pyproject .` writes it into the project"),
    Manager("Poetry", "poetry.lock", "poetry sync", "docs/install.md has the lines for pyproject.toml"),
    Manager("PDM", "pdm.lock", "pdm sync --clean", "docs/install.md has the lines for pyproject.toml"),
    Manager("pixi", "pixi.lock", "pixi install", "docs/install.md has the lines for pixi.toml"),
    Manager(
        "pip-tools", "requirements.in", "pip-sync", "`toolkit install --requirements FILE` writes what to add there"
    ),
)


def describe(environment: Path) -> Iterator[str]:
    """Yield what to know where an environment belongs to a project. It lies in the project's folder."""
    for folder in environment.parents[:3]:
        for manager in MANAGERS:
            if (folder / manager.lock).is_file():
                yield (
                    f"{folder} is a project of {manager.name}, whose `{manager.sync}` removes what is not in "
                    f"{manager.lock}: {manager.write}"
                )
                return


def write(project: Path, packages: Sequence[Package], uv: Uv) -> None:
    """Write TensorFlow and NVIDIA's libraries into the pyproject.toml of a project of uv, which does the writing.

    Raises UsageError if there is no such file, and BuildError if uv does not accept its content.
    """
    if not (project / "pyproject.toml").is_file():
        raise UsageError(f"there is no pyproject.toml in {project}", remedy="name the folder of a project of uv")
    wanted = [package for package in packages if package.is_tensorflow or package.name.startswith(NVIDIA)]
    texts = [str(package.wheel) if package.wheel else f"{package.name}=={package.version}" for package in wanted]
    uv.run("add", "--frozen", *texts, project=project)
