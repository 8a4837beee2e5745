"""Describes the contents of an environment: a locked set of packages, and optionally the user's own wheel."""

from dataclasses import dataclass
from pathlib import Path

from toolkit import digest, project
from toolkit.errors import UnsupportedError, UsageError
from toolkit.settings import Settings
from toolkit.versions import find_locked, load_table, plan_set

PUBLISHED = "pypi"
"""The value of `--wheel` for the published wheel."""


@dataclass(frozen=True, kw_only=True)
class EnvironmentSpec:
    tensorflow: str
    python: str  # ``X.Y``
    cuda: str = ""  # cuda, cudnn: releases ``X.Y.Z`` of the component wheels; empty for the CPU set
    cudnn: str = ""
    requirements: str = "cpu"  # name of the locked set, a file of docker/requirements without its ending
    wheel: Path | None = None  # a file to install in place of the published wheel
    instructions: tuple[str, ...] = ()  # of the processor that this wheel needs beyond AVX, as /proc/cpuinfo names them

    @property
    def variant(self) -> str:
        """The name of the locked set, as part of image tags and folder names."""
        return self.requirements

    @property
    def inputs(self) -> dict[str, str]:
        wheel = {"wheel": digest.digest_file(self.wheel)} if self.wheel else {}
        return {"requirements": digest.digest_file(self.locked), **wheel}

    @property
    def locked(self) -> Path:
        return project.locate(f"docker/requirements/{self.requirements}.txt")


@dataclass(frozen=True, kw_only=True)
class Platform:
    """The C library and Python (``X.Y``) that a wheel must run on; empty if they are not known yet."""

    glibc: str = ""
    python: str = ""


def resolve(settings: Settings) -> EnvironmentSpec:
    """Return the published wheel's environment for these settings.

    Raises UnsupportedError: there can be no such set, or it is not locked yet.
    """
    table = load_table()
    asked = (settings.tensorflow, settings.python, settings.cuda, settings.cudnn)
    locked = find_locked(table, *asked)
    if locked is None:
        plan_set(table, *asked)
        flags = f"--tensorflow {settings.tensorflow} --python {settings.python}"
        flags += f" --cuda {settings.cuda} --cudnn {settings.cudnn}" if settings.cuda else ""
        raise UnsupportedError(
            f"no locked set holds {_name(settings.tensorflow, settings.cuda, settings.cudnn)} "
            f"for Python {settings.python}",
            why="locked: " + "; ".join(_name(item.tensorflow, item.cuda, item.cudnn) for item in table.published),
            remedy=f"`toolkit lock {flags}` makes it, or choose one of these",
        )
    return EnvironmentSpec(
        tensorflow=settings.tensorflow,
        python=settings.python,
        cuda=settings.cuda,
        cudnn=settings.cudnn,
        requirements=locked.requirements,
    )


def find_wheel(wheel: str | None) -> Path | None:
    """Return the file that ``--wheel`` names, or None for the published wheel. Raises UsageError: none, or many."""
    if wheel is None or wheel == PUBLISHED:
        return None
    path = Path(wheel)
    found = sorted(path.glob("tensorflow*.whl")) if path.is_dir() else [path]
    if len(found) != 1 or not found[0].is_file():
        raise UsageError(
            f"there is no wheel {path}" if not found or not path.is_dir() else f"{path} holds {len(found)} wheels",
            remedy=f"give the path of one .whl file, or {PUBLISHED} for the published one",
        )
    return found[0].resolve()


def _name(tensorflow: str, cuda: str, cudnn: str) -> str:
    return f"TensorFlow {tensorflow} with " + (f"CUDA {cuda} and cuDNN {cudnn}" if cuda else "the CPU set")
