"""Evaluates a trained network on the test images of a data set: ``python -m train evaluate RUN [DATASET]``."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import numpy as np
import typer
from numpy.typing import NDArray

from train.cli import run_command
from train.command_line import default_cache
from train.config.configuration import OPTIONS, TrainConfig
from train.errors import DataError
from train.record.reader import choose_data, read_inputs
from train.report.gallery import escape
from train.system import output
from train.system.files import write_text

if TYPE_CHECKING:
    from train.data import Dataset

SHOWN: Final = 20
"""Largest number of classes whose confusion matrix is printed. For more, as many confusions are listed."""


@dataclass(frozen=True)
class ClassReport:
    """The results of a class. Precision is None if the class was never predicted, recall if it has no image."""

    label: str
    images: int
    precision: float | None
    recall: float | None


@dataclass(frozen=True)
class Report:
    """The results of a data set; `confusion` counts images by true class, then predicted class.

    `calibration` has a triple for each bin of probabilities: images, mean probability, and accuracy.
    """

    dataset: str
    source: str
    images: int
    data_sha256: str
    accuracy: float
    loss: float
    calibration_error: float
    calibration: list[list[float]]
    classes: tuple[ClassReport, ...]
    confusion: list[list[int]]
    note: str


def evaluate(folder: Path, config: TrainConfig | None = None) -> Report:
    """Evaluate a run on the test images of a data set, by default its own; on all images of other data without splits.

    The kernels and threads are those of the run, so its own test images give its accuracy and loss to the bit. Raises a
    DataError if the data has classes or images that the run does not know.
    """
    from train.data import load, load_measured
    from train.use import network

    trained = network.load(folder, exact=True)
    config = config or trained.config
    same = (config.data_sha256 or config.dataset) == (trained.config.data_sha256 or trained.config.dataset)
    dataset = load(config) if same else load_measured(config, trained.inputs.shape)
    labels = match_labels(dataset, trained.inputs.class_names)
    shape = dataset.test.images.shape[1:]
    if shape != trained.inputs.shape:
        raise DataError(f"images of {dataset.source} are {shape}, and those of the run {trained.inputs.shape}")
    from train.step.evaluation import compile_evaluation_step, compute_logits, make_evaluation_step, measure

    inputs = read_inputs(trained.position.environment, trained.config).for_white(config.white)
    mean, std = np.asarray(inputs.mean), np.asarray(inputs.std)
    step = make_evaluation_step(trained.model, mean, std, form=trained.form)
    step = compile_evaluation_step(step, trained.config)
    logits = compute_logits(step, dataset.test, lambda: "")
    assert logits is not None  # noqa: S101 - nothing stops it
    measured = measure(logits, labels)
    reliability = measured.describe_calibration()
    is_own = config.dataset == trained.config.dataset
    changed = is_own and dataset.digest != trained.position.environment["data_sha256"]
    notes = [trained.note, *dataset.notes]
    if changed:
        notes.append("the data is not what the run was trained on")
    return Report(
        config.dataset,
        dataset.source,
        len(labels),
        dataset.digest,
        measured.accuracy,
        measured.loss,
        reliability["calibration_error"],
        reliability["calibration"],
        tuple(report_classes(measured.confusion, trained.inputs.class_names)),
        measured.confusion.tolist(),
        "; ".join(filter(None, notes)),
    )


def match_labels(dataset: "Dataset", names: Sequence[str]) -> NDArray[np.int32]:
    """Return the labels of the test images as numbers of the run's classes, which are matched by their names."""
    unknown = [name for name in dataset.class_names if name not in names]
    if unknown:
        raise DataError(
            f"the run does not know {len(unknown)} classes of {dataset.source}: {', '.join(unknown[:5])}",
            why=f"its classes are {', '.join(names[:5])}{', …' if len(names) > 5 else ''}",
            remedy="give a data set with the classes that it was trained on",
        )
    places = np.array([names.index(name) for name in dataset.class_names], np.int32)
    return np.asarray(places[dataset.test.labels])


def report_classes(confusion: NDArray[np.int64], names: Sequence[str]) -> Iterator[ClassReport]:
    for index, name in enumerate(names):
        right, predicted, true = (
            int(count) for count in (confusion[index, index], confusion[:, index].sum(), confusion[index].sum())
        )
        yield ClassReport(name, true, right / predicted if predicted else None, right / true if true else None)


def describe(report: Report) -> str:
    names = [escape(row.label) for row in report.classes]
    width = max(len("class"), *map(len, names))
    lines = [
        f"{report.dataset}: {report.images} test images, from {output.translate(report.source)}",
        f"accuracy {report.accuracy:.2%}  loss {report.loss:.4f}  calibration error {report.calibration_error:.2%}",
        f"{'class':<{width}}  {'images':>6}  {'precision':>9}  {'recall':>7}",
    ]
    for name, row in zip(names, report.classes, strict=True):
        shares = ("-" if share is None else f"{share:.2%}" for share in (row.precision, row.recall))
        lines.append("{:<{}}  {:>6}  {:>9}  {:>7}".format(name, width, row.images, *shares))
    lines += _describe_matrix(report.confusion, names) if len(names) <= SHOWN else _list_confusions(report, names)
    return "\n".join([*lines, *filter(None, [report.note])])


def _describe_matrix(confusion: list[list[int]], names: Sequence[str]) -> Iterator[str]:
    yield "true class by row, predicted class by column in the same order"
    width = max(len(str(count)) for row in confusion for count in row)
    for name, row in zip(names, confusion, strict=True):
        yield f"{name:<{max(map(len, names))}}  " + " ".join(f"{count:>{width}}" for count in row)


def _list_confusions(report: Report, names: Sequence[str]) -> Iterator[str]:
    yield f"most frequent confusions of {len(names)} classes"
    wrong = [
        (count, true, predicted)
        for true, row in enumerate(report.confusion)
        for predicted, count in enumerate(row)
        if count and true != predicted
    ]
    for count, true, predicted in sorted(wrong, key=lambda mistake: (-mistake[0], *mistake[1:]))[:SHOWN]:
        yield f"{names[true]} taken for {names[predicted]}: {count}"


def collect(  # noqa: PLR0917
    run: Annotated[Path, typer.Argument(help="Folder of a run.")],
    dataset: Annotated[
        str, typer.Argument(help="Data set with test images of the same classes; by default that of the run.")
    ] = "",
    data_dir: Annotated[str, typer.Option(help="Local copy of the data set.", metavar="DIR")] = "",
    cache_dir: Annotated[str, typer.Option(help="Where downloads are kept.", metavar="DIR")] = "",
    out: Annotated[
        Path | None, typer.Option(help="Also write evaluation.json, confusion.csv and confusion.png.", metavar="DIR")
    ] = None,
    skip_broken: Annotated[bool, typer.Option(help=OPTIONS["skip_broken"].help)] = False,
    report_broken: Annotated[str, typer.Option(help=OPTIONS["report_broken"].help, metavar="FILE")] = "",
    strict_data: Annotated[bool, typer.Option(help=OPTIONS["strict_data"].help)] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")] = False,
) -> int:
    """Measure accuracy, loss, precision, recall and calibration of a run's network on test images.

    Of data without a test split all images are measured, unless the network was trained on it.
    """
    files: dict[str, bool | str] = {"skip_broken": skip_broken, "strict_data": strict_data}
    files["report_broken"] = report_broken
    report = evaluate(run, choose_data(run, dataset, data_dir, cache_dir or default_cache(), files))
    if out:
        from train.report.plot import write_confusion

        names = [row.label for row in report.classes]
        write_confusion(out, np.array(report.confusion), names)
        write_text(out / "evaluation.json", output.dump_json(asdict(report)) + "\n")
    if json:
        output.show_json(asdict(report))
    else:
        output.show(describe(report))
    return 0


def main(argv: Sequence[str]) -> int:
    return run_command(collect, "evaluate", argv)
