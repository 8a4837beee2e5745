"""From settings to a recipe: which locked set, or which wheel, serves the versions asked for."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from toolkit import manifest
from toolkit.errors import IntegrityError, UnsupportedError, UsageError
from toolkit.recipe import Recipe
from toolkit.settings import Settings
from toolkit.versions import find_locked, load_table

if TYPE_CHECKING:
    from toolkit.engine.protocol import Platform

PUBLISHED = "pypi"
"""The word for `--wheel` that means the published wheel."""


def choose(settings: Settings) -> Recipe:
    """The recipe of the published wheel.

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
    return Recipe(
        tensorflow=settings.tensorflow,
        python=settings.python,
        cuda=settings.cuda,
        cudnn=settings.cudnn,
        requirements=locked.requirements,
    )


def find_wheel(wheel: str | None) -> Path | None:
    """The file that ``--wheel`` means: itself, or the one wheel of a folder that `toolkit build-wheel` made.

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


def take_wheel(recipe: Recipe, path: Path, platform: "Platform") -> Recipe:
    """The same recipe with a wheel of our own in TensorFlow's place, after reading what it is.

    Args:
        recipe: whose versions the wheel must have.
        path: the wheel.
        platform: what it will run on, as far as that is known.

    Raises:
        UnsupportedError: it is not TensorFlow, of another version, for another Python, or needs a newer C library.
        IntegrityError: it is damaged, or not what the sums and the manifest beside it say.
    """
    # Reading ELF takes a library that takes long to load: only who brings a wheel pays.
    from toolkit.wheel import fitness, folder, inspection

    for file in (path, path.with_name(manifest.FILE)):
        folder.check_sum(file)
    found = inspection.inspect(path)
    record = _find_record(path, found.digest)
    fitness.require(
        found,
        tensorflow=recipe.tensorflow,
        python=recipe.python,
        cuda=recipe.cuda,
        cudnn=recipe.cudnn,
        built_cudnn=_read_cudnn(record) if record else "",
        glibc=platform.glibc,
        base_python=platform.python,
    )
    return replace(recipe, wheel=path)


def _find_record(wheel: Path, digest: str) -> manifest.Manifest | None:
    """Read the manifest beside a wheel; None where no manifest of a wheel is there.

    Raises:
        IntegrityError: it is the manifest of another wheel.
    """
    record = manifest.read(wheel.parent)
    if record is None or record.kind != "wheel":
        return None
    if record.digest != digest:
        raise IntegrityError(
            f"{wheel.name} is not the wheel of the manifest beside it",
            why=f"the manifest is of {record.digest}, and the wheel is {digest}",
            remedy="build the wheel again; to use this wheel without its manifest, copy it to a folder of its own",
        )
    return record


def _read_cudnn(record: manifest.Manifest) -> str:
    """Return the cuDNN that a wheel was built for, or nothing where the manifest does not say."""
    try:
        return str(record.facts["lock"]["spec"]["cudnn"])
    except (KeyError, TypeError):
        return ""


def _name(tensorflow: str, cuda: str, cudnn: str) -> str:
    return f"TensorFlow {tensorflow} with " + (f"CUDA {cuda} and cuDNN {cudnn}" if cuda else "the CPU set")
