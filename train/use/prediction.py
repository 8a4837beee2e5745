"""Classifies image files by a trained network: ``python -m train predict RUN IMAGE…``."""

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import numpy as np
import typer
from numpy.typing import NDArray

from train.cli import run_command
from train.config import origin
from train.cores import count_cores
from train.data import images
from train.errors import DataError, UsageError
from train.report.gallery import escape
from train.run.progress import translate
from train.system import output
from train.use import explanation

if TYPE_CHECKING:
    from train.use.network import Network

BATCH: Final = 64


@dataclass(frozen=True)
class ClassScore:
    label: str
    probability: float


@dataclass(frozen=True)
class Prediction:
    """The most probable classes of an image, the best first; for an image that cannot be read, none, and the reason."""

    image: str
    guesses: tuple[ClassScore, ...] = ()
    problem: str = ""


def list_images(names: Iterable[str], listed: Iterable[str] = ()) -> list[Path]:
    """Return the files to classify: each that is named, all images below a folder, and for ``-`` the `listed` ones.

    Raises a DataError if a folder has no images.
    """
    found: list[Path] = []
    for name in names:
        if name == "-":
            found += list_images(filter(None, (line.rstrip("\r\n") for line in listed)))
        elif os.path.isdir(name):  # noqa: PTH112
            below = sorted(path for path in Path(name).rglob("*") if path.suffix.lower() in origin.SUFFIXES)
            if not below:
                raise DataError(
                    f"{name} holds no images",
                    why=f"no file below it ends with one of {', '.join(sorted(origin.SUFFIXES))}",
                )
            found += below
        else:
            found.append(Path(name))
    return found


def predict(network: "Network", files: Sequence[Path], top: int, explain: Path | None = None) -> Iterator[Prediction]:
    """Yield the prediction of each file, in order, and draw it into the folder `explain`. One batch is in memory."""

    def read(path: Path) -> NDArray[np.uint8] | DataError:
        try:
            return images.center_crop(images.load(path), network.inputs.shape, network.inputs.center)
        except DataError as error:
            return error

    with ThreadPoolExecutor(count_cores()) as pool:
        for start in range(0, len(files), BATCH):
            paths = files[start : start + BATCH]
            decoded = list(pool.map(read, paths))
            good = [image for image in decoded if not isinstance(image, DataError)]
            shares = iter(network.compute_probabilities(np.stack(good)) if good else ())
            for number, (path, image) in enumerate(zip(paths, decoded, strict=True), start=start + 1):
                if isinstance(image, DataError):
                    yield Prediction(str(path), problem=describe_problem(image))
                    continue
                share = next(shares)
                guesses = rank(network.inputs.class_names, share, top)
                if explain:
                    best = int(np.argmax(share))
                    explanation.draw(network, image, best, explain / f"{number:04}-{path.stem}.png")
                yield Prediction(str(path), guesses)


def describe_problem(error: DataError) -> str:
    """Return why an image cannot be read, and what to do, as one line."""
    return "; ".join(filter(None, [error.why or error.what, error.remedy]))


def rank(names: Sequence[str], share: NDArray[np.float64], top: int) -> tuple[ClassScore, ...]:
    """Return the most probable classes, the best first; of equal ones, in the order of the classes."""
    best = np.argsort(-share, kind="stable")[:top].tolist()
    return tuple(ClassScore(names[index], float(share[index])) for index in best)


def describe(prediction: Prediction, width: int) -> str:
    """Return a line of the table."""
    text = "  ".join(f"{escape(guess.label)} {guess.probability:.2%}" for guess in prediction.guesses)
    return (
        f"{output.inline(prediction.image):<{width}}  {text or 'cannot be read: ' + output.inline(prediction.problem)}"
    )


def collect(
    run: Annotated[Path, typer.Argument(help="Folder of a run.")],
    image: Annotated[
        list[str], typer.Argument(help="Image files, folders of images, or - for a list on standard input.")
    ],
    top: Annotated[int, typer.Option(min=1, help="Classes shown for each image.")] = 5,
    explain: Annotated[
        Path | None, typer.Option(help="Draw what spoke for the best class of each image (Grad-CAM).", metavar="DIR")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")] = False,
) -> int:
    """Classify images by the network of a run. An image that cannot be read is named, and the exit code is then 9."""
    files = list_images(image, sys.stdin)
    if not files:
        raise UsageError("there are no images to classify", why="the list on standard input is empty")
    from train.use import network

    found, width = [], max(len(output.inline(translate(str(file)))) for file in files)
    for prediction in predict(network.load(run, exact=True), files, top, explain):
        shown = Prediction(translate(prediction.image), prediction.guesses, translate(prediction.problem))
        found.append(shown)
        if not json:
            output.show(describe(shown, width))
    bad = [each for each in found if each.problem]
    if json:
        output.show_json({"run": translate(str(run)), "predictions": [asdict(each) for each in found]})
    if bad:
        output.say(f"error: {len(bad)} of {len(found)} images cannot be read; the others are classified")
    return DataError.exit_code if bad else 0


def main(argv: Sequence[str]) -> int:
    return run_command(collect, "predict", argv)
