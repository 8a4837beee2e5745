"""From settings to a recipe: which locked set, or which wheel, serves the versions asked for."""

from pathlib import Path

from toolkit import matrix
from toolkit.errors import UnsupportedError, UsageError
from toolkit.matrix import Published
from toolkit.recipe import Recipe
from toolkit.settings import Settings

PUBLISHED = "pypi"
"""The word for `--wheel` that means the published wheel."""


def choose(settings: Settings, wheel: str | None = None) -> Recipe:
    """What the environment must hold.

    Raises:
        UnsupportedError: no locked set serves these versions; the nearest one is named.
        UsageError: the wheel's file does not exist.
    """
    table = matrix.load()
    table.tensorflow(settings.tensorflow)
    served = [item for item in table.published if _serves(item, settings)]
    if not served:
        raise UnsupportedError(
            f"no locked set holds the published {_name(settings.tensorflow, settings.cuda, settings.cudnn)} "
            f"for Python {settings.python}",
            why="locked: "
            + "; ".join(
                f"{_name(item.tensorflow, item.cuda, item.cudnn)} for Python {', '.join(item.python)}"
                for item in table.published
            ),
            remedy="choose one of these, or build a wheel for your set and give it with --wheel",
        )
    return Recipe(
        tensorflow=settings.tensorflow,
        python=settings.python,
        cuda=settings.cuda,
        cudnn=settings.cudnn,
        requirements=served[0].requirements,
        wheel=_find_wheel(wheel),
    )


def _serves(item: Published, settings: Settings) -> bool:
    return (
        item.tensorflow == settings.tensorflow
        and settings.python in item.python
        and (item.cuda, item.cudnn) == (settings.cuda, settings.cudnn)
    )


def _name(tensorflow: str, cuda: str, cudnn: str) -> str:
    return f"TensorFlow {tensorflow} with " + (f"CUDA {cuda} and cuDNN {cudnn}" if cuda else "the CPU set")


def _find_wheel(wheel: str | None) -> Path | None:
    if wheel is None or wheel == PUBLISHED:
        return None
    path = Path(wheel)
    if not path.is_file():
        raise UsageError(
            f"there is no wheel {wheel}", remedy=f"give the path of a .whl file, or {PUBLISHED} for the published one"
        )
    return path
