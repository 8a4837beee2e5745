"""Describes one training run: numbers, curves, confusions, images, calibration, configuration, and its chain."""

import base64
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Any, Final

from toolkit.records import Run
from toolkit.records.run import describe_unfinished
from toolkit.report import chain, chart
from toolkit.report.chain import PageContext
from toolkit.report.page_model import (
    NOTHING,
    Cell,
    Chart,
    Matrix,
    Number,
    Page,
    Picture,
    Section,
    Series,
    Sheet,
    Table,
    Text,
    Tile,
)
from toolkit.report.run_files import RunFolder, is_number, show_bytes, show_seconds
from train.command_line import parse
from train.config.configuration import DEFAULTS, INCIDENTAL, OPEN, TrainConfig
from train.record import reader
from train.record.metrics import EpochRecord
from train.system.files import read_regular

TEST, TRAIN = 0, 1
"""Colours of curves."""

ROOM: Final = 1_300_000
"""Bytes that all pictures of a page may have; base64 adds a third to those of the files."""

_SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"


@dataclass
class Budget:
    """The bytes that are left for pictures of a page."""

    left: int = ROOM

    def take(self, path: Path, alt: str, caption: str) -> Picture | Text:
        """Return a picture, or a sentence that says why it is not here."""
        try:
            data = read_regular(path)
        except OSError:
            return Text(text=f"{path.name} is not here.")
        size = measure(data)
        if size is None:
            return Text(text=f"{path.name} is no PNG file.")
        encoded = base64.b64encode(data).decode()
        if len(encoded) > self.left:
            return Text(text=f"{path.name} is left out: it has {len(data):,} bytes, and the page must stay small.")
        self.left -= len(encoded)
        return Picture(data=f"data:image/png;base64,{encoded}", alt=alt, caption=caption, width=size[0], height=size[1])


def describe(artifact: Run, context: PageContext, *, pictures: bool = True) -> Page:
    """Return the page of a run. Raises a ToolkitError if it is no folder of a run."""
    run, budget = RunFolder(artifact.folder), Budget() if pictures else Budget(0)
    links = chain.follow(artifact, context)
    config = run.config
    sections = [
        Section(id="curves", title="Curves", parts=list(draw_curves(run))),
        _describe_confusion(run),
        _show_images(run, budget, pictures=pictures),
        _describe_calibration(run.result),
        _describe_costs(run),
        Section(id="chain", title="Where it came from", lead=chain.LEAD, parts=[links]),
        _describe_config(config),
        _describe_data(run),
    ]
    return Page(
        kind="Training run" if run.value else "Training run, not finished",
        title=run.name,
        lead=_introduce(run),
        numbers=list(_list_numbers(run)),
        sections=[section for section in sections if section and section.parts],
        chain=links,
        commands=[f"toolkit verify {artifact.folder}", f"toolkit reproduce {artifact.folder}"],
    )


def _introduce(run: RunFolder) -> str:
    config, environment = run.config, run.environment
    sentence = f"DenseNet {config.model}, trained on {config.dataset}"
    if not run.value:
        return f"{sentence}. {describe_unfinished(run.folder).capitalize()}."
    kernels = "native" if environment.get(reader.KERNELS) else "TensorFlow's"
    examples = run.value.get("data", {}).get("examples", {})
    epochs, steps, size = run.result.get("epochs"), run.result.get("steps"), environment.get("batch_size")
    if is_number(count := examples.get("train")) and is_number(size):
        size = min(size, count)  # of few images, a batch has all
    parts = [f"{epochs} epoch{'s' if epochs != 1 else ''}, {steps:,} steps of {size} images"]
    parts += [f"{count:,} training images"] if is_number(count) else []
    parts += [
        ", ".join(map(str, environment.get("devices") or [])),
        f"{environment.get('threads')} threads",
        f"{kernels} kernels",
    ]
    return f"{sentence}: {'; '.join(filter(None, parts))}."


def _list_numbers(run: RunFolder) -> Iterator[Number]:
    result = run.result
    if not result and run.epochs:
        last = run.epochs[-1]
        yield Number(
            label=f"{run.watched.capitalize()} accuracy",
            text=f"{last.test_accuracy:.2%}",
            note=f"after epoch {last.epoch}",
        )
        yield Number(label=f"{run.watched.capitalize()} loss", text=f"{last.test_loss:.4f}")
        yield Number(label="Training time", text=show_seconds(last.seconds))
    if not result:
        return
    examples = run.value.get("data", {}).get("examples", {}).get("test")
    yield Number(
        label="Test accuracy",
        text=f"{result['test_accuracy']:.2%}",
        note=f"of {examples:,} images" if is_number(examples) else "",
    )
    yield Number(label="Test loss", text=f"{result['test_loss']:.4f}")
    if "validation_accuracy" in result:
        yield Number(label="Validation accuracy", text=f"{result['validation_accuracy']:.2%}")
    if "best_epoch" in result:
        yield Number(label="Weights of epoch", text=f"{result['best_epoch']:.0f}", note="the best by validation")
    if "calibration_error" in result:
        yield Number(label="Calibration error", text=f"{result['calibration_error']:.2%}")
    yield Number(label="Training time", text=show_seconds(result["train_seconds"]), note=_show_speed(run.epochs))


def _show_speed(epochs: Sequence[EpochRecord]) -> str:
    return f"{epochs[-1].images_per_second:,.0f} images/s at the end" if epochs else ""


def _describe_confusion(run: RunFolder) -> Section | None:
    if not run.confusion:
        return None
    names, counts = run.confusion
    shown = Matrix(
        caption="Test images by true class (rows) and predicted class (columns)",
        names=names,
        counts=counts,
        links=link_cells(run.value.get("mistakes")),
    )
    wrong = sum(sum(row) - row[index] for index, row in enumerate(counts))
    total = sum(map(sum, counts))
    taken = "is" if wrong == 1 else "are"
    lead = f"{total - wrong:,} of {total:,} test images are recognized, {wrong:,} {taken} taken for another class."
    rows = []
    columns = list(zip(*counts, strict=True))
    for index, (name, row) in enumerate(zip(names, counts, strict=True)):
        recall = row[index] / sum(row) if sum(row) else None
        precision = row[index] / sum(columns[index]) if sum(columns[index]) else None
        rows.append(
            (
                name,
                f"{sum(row):,}",
                Cell(text=NOTHING if precision is None else f"{precision:.2%}", share=precision),
                Cell(text=NOTHING if recall is None else f"{recall:.2%}", share=recall),
            )
        )
    table = Table(
        caption="Precision and recall of each class",
        columns=("Class", "Images", "Precision", "Recall"),
        rows=rows,
        numeric=frozenset({1, 2, 3}),
        folded="Precision and recall of each class",
    )
    return Section(id="confusions", title="Confusions", lead=lead, parts=[*chart.describe_matrix(shown), table])


def _show_images(run: RunFolder, budget: Budget, *, pictures: bool) -> Section | None:
    if not pictures or not run.value.get("pictures"):
        return None
    names = run.confusion[0] if run.confusion else []
    mistakes = show_mistakes(run.folder, run.value.get("mistakes"), names, budget)
    how = describe_pictures(run.value["config"])
    samples = budget.take(
        run.folder / reader.SAMPLES, "Images of training with their classes", f"Samples of training, {how}"
    )
    return Section(id="images", title="Images", parts=[mistakes, samples])


def _describe_calibration(result: Mapping[str, Any]) -> Section | None:
    bins = result.get("calibration")
    if not isinstance(bins, list) or not bins or not all(map(_is_bin, bins)):
        return None
    drawn = Chart(
        id="reliability",
        title="Accuracy by probability",
        x="mean probability of the predicted class",
        y="share that is right",
        series=[
            Series(
                name="test images",
                xs=[b[1] for b in bins],
                ys=[b[2] for b in bins],
                color=TEST,
                dots=True,
                weights=[b[0] / sum(row[0] for row in bins) for b in bins],
            )
        ],
        text=f"On average, the probability misses the accuracy by {result['calibration_error']:.2%}.",
        unit="%",
        x_unit="%",
        logarithmic=False,
        square=True,
        values=Table(
            caption="Test images by the probability of their predicted class",
            columns=("Images", "Mean probability", "Accuracy"),
            rows=[(f"{count:,}", f"{sure:.2%}", f"{right:.2%}") for count, sure, right in bins],
            numeric=frozenset({0, 1, 2}),
            folded="Numbers of each bin",
        ),
    )
    lead = (
        "Below the diagonal, the network is surer than it is right; above it, less sure. Larger dots have more images."
    )
    return Section(id="calibration", title="Calibration", lead=lead, parts=[drawn])


def _is_bin(value: object) -> bool:
    """Return whether a value has a number of images, their mean probability and their accuracy."""
    numbers = value if isinstance(value, list) and len(value) == 3 and all(map(is_number, value)) else [0, 0, 0]
    return numbers[0] > 0 and all(0 <= share <= 1 for share in numbers[1:])


def _describe_costs(run: RunFolder) -> Section:
    result, epochs = run.result, run.epochs
    rows: list[tuple[str, str]] = []
    if result:
        rows.append(("Training, without the first step of each process", show_seconds(result["train_seconds"])))
    if is_number(first := result.get("first_step_seconds")):
        rows.append(("First step, most of it to make the graph", show_seconds(first)))
    if epochs:
        speeds = sorted(epoch.images_per_second for epoch in epochs)
        rows.append(("Images per second, median of the epochs", f"{speeds[len(speeds) // 2]:,.0f}"))
    if is_number(peak := result.get("process_peak_bytes")):
        rows.append(("Most memory of the process", show_bytes(peak)))
    if is_number(peak := result.get("device_peak_bytes")):
        rows.append(("Most memory of the device", show_bytes(peak)))
    parts: list[Any] = []
    if rows:
        parts.append(
            Table(caption="What the run took", columns=("What", "How much"), rows=rows, numeric=frozenset({1}))
        )
    if len(epochs) > 1:
        parts.append(
            Chart(
                id="speed",
                title="Speed",
                x="step",
                y="images per second",
                series=[
                    Series(
                        name="training",
                        xs=[e.step for e in epochs],
                        ys=[e.images_per_second for e in epochs],
                        color=TEST,
                    )
                ],
                text=f"From {speeds[0]:,.0f} to {speeds[-1]:,.0f} images per second.",
                bottom=0.0,
                logarithmic=False,
            )
        )
    return Section(id="costs", title="Time and memory", parts=parts)


def find_usual(config: TrainConfig) -> Mapping[str, Any]:
    """Return the configuration that the same data set has without options.

    For the user's own data, which need not be here, it lacks what the data decides.
    """
    if not config.own:
        return parse([config.dataset]).as_dict()
    return {name: value for name, value in DEFAULTS.items() if value is not MISSING} | {"kernels": OPEN["kernels"]}


def _describe_config(config: TrainConfig) -> Section:
    usual, rows = find_usual(config), []
    for name, value in config.as_dict().items():
        if name in {"dataset", "class_names", *INCIDENTAL}:
            continue
        differs = name in usual and _plain(usual[name]) != _plain(value)
        rows.append(
            (
                differs,
                (
                    Cell(text=name.replace("_", " "), strong=differs),
                    Cell(text=_plain(value), strong=differs),
                    _plain(usual.get(name)),
                ),
            )
        )
    changed = [row for differs, row in rows if differs]
    columns = ("Option", "This run", "Default")
    kept = [row[:2] for differs, row in rows if not differs]
    parts: list[Any] = []
    if changed:
        parts.append(Table(caption=f"Differs from the defaults for {config.dataset}", columns=columns, rows=changed))
    else:
        parts.append(Text(text=f"Every option has its default for {config.dataset}."))
    parts.append(
        Table(caption="As by default", columns=columns[:2], rows=kept, folded=f"{len(kept)} options as by default")
    )
    return Section(id="configuration", title="Configuration", parts=parts)


def _plain(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or NOTHING
    return NOTHING if value is None or value == "" else str(value)


def _describe_data(run: RunFolder) -> Section:
    value, environment = run.value, run.environment
    data, software = dict(value.get("data", {})), dict(value.get("software", {}))
    rows: list[tuple[str, Cell | str]] = []
    if data:
        rows.append(("Data", str(data.get("source", ""))))
        rows.append(("SHA-256 of images and labels", Cell(text=str(data.get("sha256", "")), code=True)))
        rows += [("Note", str(note)) for note in (*data.get("notes", ()), *data.get("warnings", ()))]
    if value:
        rows.append(("Devices", ", ".join(map(str, environment.get("devices") or []))))
        cores = value.get("hardware", {}).get("cores", NOTHING)
        rows.append(("Cores, threads", f"{cores}, {environment.get('threads')}"))
        rows += [(str(name), str(version)) for name, version in software.items()]
    if resumed := value.get("resumed_after"):
        rows.append(("Resumed after steps", ", ".join(map(str, resumed))))
    table = Table(caption="Data, devices and software", columns=("What", "Value"), rows=rows)
    return Section(id="machine", title="Data and machine", parts=[table] if rows else [])


def draw_curves(run: RunFolder) -> Iterator[Chart | Text]:
    if not run.epochs and not run.steps:
        yield Text(text="No epoch is recorded yet.")
        return
    ends, watched = [epoch.step for epoch in run.epochs], run.watched
    steps = Series(
        name="training, single steps",
        xs=[step["step"] for step in run.steps],
        ys=[step["loss"] for step in run.steps],
        color=TRAIN,
        faint=True,
    )
    few = len(ends) <= 60
    loss = [
        Series(name="training, by epoch", xs=ends, ys=[e.train_loss for e in run.epochs], color=TRAIN, dots=few),
        Series(name=watched, xs=ends, ys=[e.test_loss for e in run.epochs], color=TEST, dots=few),
    ]
    error = [
        Series(name="training", xs=ends, ys=[1 - e.train_accuracy for e in run.epochs], color=TRAIN, dots=few),
        Series(name=watched, xs=ends, ys=[1 - e.test_accuracy for e in run.epochs], color=TEST, dots=few),
    ]
    yield Chart(
        id="loss",
        title="Loss",
        x="step",
        y="mean loss",
        series=[series for series in (steps, *loss) if series.xs],
        text=_tell("loss", watched, run.epochs, [e.test_loss for e in run.epochs], [e.train_loss for e in run.epochs]),
    )
    if run.epochs:
        yield Chart(
            id="error",
            title="Error",
            x="step",
            y="share of images",
            series=error,
            text=_tell("error", watched, run.epochs, error[1].ys, error[0].ys, percent=True),
            unit="%",
            values=_tabulate_epochs(run.epochs, watched),
        )


def _tell(
    name: str,
    watched: str,
    epochs: Sequence[EpochRecord],
    seen: Sequence[float],
    trained: Sequence[float],
    *,
    percent: bool = False,
) -> str:
    """Describe two curves in words, for those who do not see them."""
    if not epochs:
        return f"The {name} by step; the first epoch is not over."

    def show(value: float) -> str:
        return f"{value:.2%}" if percent else f"{value:.4g}"

    if len(epochs) == 1:
        return f"After one epoch, the {watched} {name} is {show(seen[0])} and the training {name} {show(trained[0])}."
    best = min(range(len(seen)), key=seen.__getitem__)
    lowest = f", its lowest {show(seen[best])} after epoch {epochs[best].epoch}" if seen[best] < seen[-1] else ""
    return (
        f"The {watched} {name} went from {show(seen[0])} after epoch {epochs[0].epoch} to {show(seen[-1])} after epoch "
        f"{epochs[-1].epoch}{lowest}; the training {name} from {show(trained[0])} to {show(trained[-1])}."
    )


def _tabulate_epochs(epochs: Sequence[EpochRecord], watched: str) -> Table:
    return Table(
        caption="Numbers of each epoch",
        columns=(
            "Epoch", "Step", "Learning rate", "Training loss", "Training accuracy", f"{watched.capitalize()} loss",
            f"{watched.capitalize()} accuracy", "Images/s", "Seconds",
        ),
        rows=[
            (
                str(e.epoch), f"{e.step:,}", f"{e.learning_rate:.3g}", f"{e.train_loss:.4f}", f"{e.train_accuracy:.2%}",
                f"{e.test_loss:.4f}", f"{e.test_accuracy:.2%}", f"{e.images_per_second:,.0f}", f"{e.seconds:,.1f}",
            )
            for e in epochs
        ],
        numeric=frozenset(range(9)),
        folded="Numbers of each epoch",
    )  # fmt: skip


def measure(data: bytes) -> tuple[int, int] | None:
    """Return width and height of a PNG file; None if it is none."""
    if data[:8] != _SIGNATURE or data[12:16] != b"IHDR" or len(data) < 24:
        return None
    width, height = struct.unpack(">II", data[16:24])
    return width, height


def show_mistakes(folder: Path, recorded: object, names: Sequence[str], budget: Budget) -> Sheet | Picture | Text:
    """Return the test images with the highest loss."""
    caption = "Test images with the highest loss"
    picture = budget.take(folder / reader.MISTAKES, f"{caption}, with true and predicted class", caption)
    if isinstance(picture, Text):
        return picture
    tiles = list(_read_tiles(recorded, names, picture))
    if not tiles:
        return picture
    return Sheet(
        id="mistakes", caption=f"The {len(tiles)} test images with the highest loss", picture=picture, tiles=tiles
    )


def _read_tiles(recorded: object, names: Sequence[str], picture: Picture) -> Iterator[Tile]:
    for number, entry in enumerate(recorded if isinstance(recorded, list) else ()):
        match entry:
            case {
                "example": int(example),
                "true": int(true),
                "predicted": int(predicted),
                "probability": int() | float() as share,
                "box": [int(left), int(top), int(width), int(height)],
            } if (
                0 <= true < len(names)
                and 0 <= predicted < len(names)
                and min(left, top) >= 0 < min(width, height)
                and left + width <= picture.width
                and top + height <= picture.height
            ):
                wrong = true != predicted
                # Without the outermost pixels, into which a browser that scales mixes what stands beside the image.
                edge = 1 if min(width, height) > 8 else 0
                yield Tile(
                    id=f"mistake-{number}",
                    box=(left + edge, top + edge, width - 2 * edge, height - 2 * edge),
                    title=names[true],
                    note=f"{'taken for ' + names[predicted] if wrong else 'recognized'}, {share:.0%}",
                    tone="fail" if wrong else "ok",
                    detail=f"test image {example}",
                    cell=f"{true}-{predicted}",
                )


def link_cells(recorded: object) -> Mapping[tuple[int, int], str]:
    """Return the first image on the page for each cell of the confusion matrix that has one off its diagonal."""
    regions: dict[tuple[int, int], str] = {}
    for number, entry in enumerate(recorded if isinstance(recorded, list) else ()):
        match entry:
            case {"true": int(true), "predicted": int(predicted), "box": [_, _, _, _]} if true != predicted:
                regions.setdefault((true, predicted), f"mistake-{number}")
    return regions


def describe_pictures(value: Mapping[str, Any]) -> str:
    """Say how the samples were changed, from a run's configuration."""
    return "augmented, as the network got them" if value.get("augment") else "as the network got them"
