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
        UnsupportedError: no locked set serves these versions, or the wheel is not for them.
        UsageError: the wheel's file does not exist, or is no wheel.
        IntegrityError: the wheel is damaged.
    """
    table = matrix.load()
    table.tensorflow(settings.tensorflow)
    served = [item for item in table.published if _serves(item, settings)]
    if not served:
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
    return Recipe(
        tensorflow=settings.tensorflow,
        python=settings.python,
        cuda=settings.cuda,
        cudnn=settings.cudnn,
        requirements=served[0].requirements,
        wheel=None if wheel in {None, PUBLISHED} else _require_wheel(Path(str(wheel)), settings),
    )


def _serves(item: Published, settings: Settings) -> bool:
    return (
        item.tensorflow == settings.tensorflow
        and settings.python in item.python
        and (item.cuda, item.cudnn) == (settings.cuda, settings.cudnn)
    )


def _name(tensorflow: str, cuda: str, cudnn: str) -> str:
    return f"TensorFlow {tensorflow} with " + (f"CUDA {cuda} and cuDNN {cudnn}" if cuda else "the CPU set")


def _require_wheel(path: Path, settings: Settings) -> Path:
    if not path.is_file():
        raise UsageError(
            f"there is no wheel {path}", remedy=f"give the path of a .whl file, or {PUBLISHED} for the published one"
        )
    # Reading ELF takes a library that takes long to load: only who brings a wheel pays.
    from toolkit.wheel import fitness, inspection

    found = inspection.inspect(path)
    fitness.require(found, tensorflow=settings.tensorflow, python=settings.python)
    return path.resolve()
