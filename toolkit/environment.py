"""What an environment must hold, resolved from the settings: a locked set, and perhaps a wheel of the user's own."""

from dataclasses import dataclass
from pathlib import Path

from toolkit import digest, project
from toolkit.errors import UnsupportedError, UsageError
from toolkit.settings import Settings
from toolkit.versions import find_locked, load_table

PUBLISHED = "pypi"
"""The word for `--wheel` that means the published wheel."""


@dataclass(frozen=True, kw_only=True)
class EnvironmentSpec:
    """The contents of an image or a virtual environment.

    Attributes:
        tensorflow: version of TensorFlow.
        python: ``X.Y``.
        cuda, cudnn: releases ``X.Y.Z`` of the component wheels; empty for the CPU set.
        requirements: name of the locked set, a file of docker/requirements without its ending.
        wheel: a file to install in place of the published wheel.
    """

    tensorflow: str
    python: str
    cuda: str = ""
    cudnn: str = ""
    requirements: str = "cpu"
    wheel: Path | None = None

    @property
    def variant(self) -> str:
        """The word for it in names: ``cuda-12.6.1``, or the name of a locked set that is for no CUDA."""
        return f"cuda-{self.cuda}" if self.cuda else self.requirements

    @property
    def inputs(self) -> dict[str, str]:
        """Digests of the locked set and of the wheel, if there is one."""
        wheel = {"wheel": digest.digest_file(self.wheel)} if self.wheel else {}
        return {"requirements": digest.digest_file(self.locked), **wheel}

    @property
    def locked(self) -> Path:
        """The file of the locked set."""
        return project.locate(f"docker/requirements/{self.requirements}.txt")


@dataclass(frozen=True, kw_only=True)
class Platform:
    """What a wheel depends on where it is installed; empty where it is not known yet.

    Attributes:
        glibc: version of the C library.
        python: ``X.Y`` of the interpreter.
    """

    glibc: str = ""
    python: str = ""


def resolve(settings: Settings) -> EnvironmentSpec:
    """Return the published wheel's environment for the versions that the settings name.

    Raises:
        UnsupportedError: no locked set serves these versions.
    """
    table = load_table()
    table.tensorflow(settings.tensorflow)
    locked = find_locked(table, settings.tensorflow, settings.python, settings.cuda, settings.cudnn)
    if locked is None:
        raise UnsupportedError(
            f"no locked set holds {_name(settings.tensorflow, settings.cuda, settings.cudnn)} "
            f"for Python {settings.python}",
            why="locked: "
            + "; ".join(
                f"{_name(item.tensorflow, item.cuda, item.cudnn)} for Python {', '.join(item.python)}"
                for item in table.published
            ),
            remedy="choose one of these",
        )
    return EnvironmentSpec(
        tensorflow=settings.tensorflow,
        python=settings.python,
        cuda=settings.cuda,
        cudnn=settings.cudnn,
        requirements=locked.requirements,
    )


def find_wheel(wheel: str | None) -> Path | None:
    """Return the file that ``--wheel`` means: itself, or the one wheel of a folder that `toolkit build-wheel` made.

    Raises:
        UsageError: there is none, or more than one.
    """
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
