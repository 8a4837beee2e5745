"""Classifies image files by a trained network, and draws what it looked at: ``python -m train predict RUN IMAGE…``."""

import io
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import numpy as np
import typer
from numpy.typing import NDArray

from train.cli import run_command
from train.config import origin
from train.cores import count_cores
from train.data import images, layout
from train.data.pictures import write_report
from train.errors import DataError, UsageError
from train.report.gallery import escape
from train.system import output
from train.system.files import read_list, replacing

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


def list_images(names: Iterable[str], listed: Iterable[str] = ()) -> tuple[list[Path], list[str]]:
    """Return the files to classify, and a sentence for each folder of which files are left out.

    Files are those that are named, all images below a folder, and for ``-`` the `listed` ones. Raises a DataError if a
    folder has no images, and a UsageError for an address.
    """
    files: list[Path] = []
    left_out: list[str] = []
    for name in (entry for given in names for entry in (listed if given == "-" else [given])):
        origin.refuse_address(name)
        if not os.path.isdir(name):  # noqa: PTH112
            files.append(Path(name))
            continue
        below = [str(path.relative_to(name)) for path in sorted(Path(name).rglob("*")) if not path.is_dir()]
        below = [entry for entry in below if not origin.is_foreign(entry)]
        others = layout.describe_others(
            layout.Place(Path(name), name), [entry for entry in below if not origin.is_image(entry)]
        )
        if not any(map(origin.is_image, below)):
            raise DataError(
                f"{name} holds no images",
                why=f"left out: {others}"
                if others
                else f"no file below it ends with one of {', '.join(sorted(origin.SUFFIXES))}",
            )
        if others:
            left_out.append(others)
        files += [Path(name) / entry for entry in below if origin.is_image(entry)]
    return files, left_out


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
                    with replacing(explain / f"{number:04}-{path.stem}.png") as file:
                        file.write(render_explanation(network, image, best))
                yield Prediction(str(path), guesses)


SIDE: Final = 224
"""Shorter side of a picture, in pixels, at least."""


def compute_heat(network: "Network", image: NDArray[np.uint8], label: int) -> NDArray[np.float64]:
    """Return how much each place of the last maps speaks for a class, from 0 to 1: (height, width) of these maps.

    This is Grad-CAM (Selvaraju et al., "Grad-CAM: Visual Explanations", ICCV 2017). A map's weight is the mean gradient
    of the class's logit over its pixels. Here the logit is linear in the average of each map, so that gradient is the
    weight of the classifier divided by the number of pixels.
    """
    from train.step.evaluation import normalize_images

    mean, std = np.asarray(network.inputs.mean), np.asarray(network.inputs.std)
    images = normalize_images(image[None], mean, std, network.model.input.dtype, network.form)
    maps = np.asarray(network.last_maps(images, training=False)[0], np.float64)
    maps = np.moveaxis(maps, 0, -1) if network.form.channels_first else maps
    kernel = np.asarray(network.model.get_layer("classifier").kernel, np.float64)
    heat = np.maximum(maps @ kernel[:, label], 0) / maps[..., 0].size
    return np.asarray(heat / heat.max() if heat.max() else heat)


def render_explanation(network: "Network", image: NDArray[np.uint8], label: int) -> bytes:
    """Return a PNG file of the image as the network sees it, red where it speaks for the class."""
    from PIL import Image

    factor = max(1, -(-SIDE // min(image.shape[:2])))
    size = (image.shape[1] * factor, image.shape[0] * factor)
    shown: Any = Image.fromarray(image[..., 0] if image.shape[-1] == 1 else image).convert("RGB").resize(size)
    heat = compute_heat(network, image, label)
    mask = Image.fromarray(np.rint(160 * heat).astype(np.uint8)).resize(size, Image.Resampling.BILINEAR)
    shown.paste(Image.new("RGB", size, "red"), mask=mask)
    file = io.BytesIO()
    shown.save(file, "PNG")
    return file.getvalue()


def describe_problem(error: DataError) -> str:
    """Return in one line why an image cannot be read, and what to do."""
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


def collect(  # noqa: PLR0917
    run: Annotated[Path, typer.Argument(help="Folder of a run.")],
    image: Annotated[
        list[str], typer.Argument(help="Image files, folders of images, or - for a list on standard input.")
    ],
    top: Annotated[int, typer.Option(min=1, help="Classes shown for each image.")] = 5,
    explain: Annotated[
        Path | None, typer.Option(help="Draw what spoke for the best class of each image (Grad-CAM).", metavar="DIR")
    ] = None,
    report_broken: Annotated[
        Path | None,
        typer.Option(help="Write each image that cannot be read, and the reason, as a line of JSON.", metavar="FILE"),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")] = False,
) -> int:
    """Classify images by the network of a run. An image that cannot be read is named, and the exit code is then 9."""
    files, left_out = list_images(image, read_list(sys.stdin) if "-" in image else ())
    if not files:
        raise UsageError("there are no images to classify", why="the list on standard input is empty")
    from train.use import network

    predictions, width = [], max(len(output.inline(output.translate(str(file)))) for file in files)
    for prediction in predict(network.load(run, exact=True), files, top, explain):
        shown = Prediction(output.translate(prediction.image), prediction.guesses, output.translate(prediction.problem))
        predictions.append(shown)
        if not json:
            output.show(describe(shown, width))
    if explain and not json:
        output.say(f"explained in {output.translate(str(explain))}: red parts of a picture speak for its first class")
    for sentence in left_out:
        output.say(f"note: left out: {output.translate(sentence)}")
    bad = [prediction for prediction in predictions if prediction.problem]
    if report_broken:
        write_report(report_broken, [(prediction.image, prediction.problem) for prediction in bad])
    if json:
        output.show_json(
            {"run": output.translate(str(run)), "predictions": [asdict(prediction) for prediction in predictions]}
        )
    if bad:
        output.say(f"error: {_count_bad(len(bad), len(predictions))}")
    return DataError.exit_code if bad else 0


def _count_bad(bad: int, count: int) -> str:
    if count == 1:
        return "the image cannot be read"
    if bad == count:
        return f"none of the {count} images can be read"
    return f"{bad} of {count} images cannot be read; the others are classified"


def main(argv: Sequence[str]) -> int:
    return run_command(collect, "predict", argv)
