"""Draws a run: curves (``python -m train plot RUN…``), confusion matrix, model."""

import csv
import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from train.config.configuration import TrainConfig
from train.record.metrics import EpochRecord
from train.record.reader import CONFUSION, read_run
from train.report.gallery import choose_fonts, shorten, show
from train.system import output
from train.system.files import replacing, write_text
from train.system.program import explain_errors


def draw(folder: Path) -> Path:
    config, records = read_run(folder)
    path = folder / "curves.png"
    draw_records(records, config, path)
    return path


def draw_records(records: Sequence[EpochRecord], config: TrainConfig, path: Path) -> None:
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    # Fixed margins, because computing them takes as long as the drawing, which a short run repeats.
    figure = Figure(figsize=(10, 4.2))
    figure.subplots_adjust(left=0.08, right=0.985, bottom=0.125, top=0.88, wspace=0.34)
    epochs = [record.epoch for record in records]
    loss, error = figure.subplots(1, 2)
    for axes, name, scale in ((loss, "loss", 1.0), (error, "accuracy", 100.0)):
        for part, color in (("train", "tab:blue"), ("test", "tab:orange")):
            values = [getattr(record, f"{part}_{name}") for record in records]
            shown = values if name == "loss" else [scale * (1 - value) for value in values]
            axes.plot(epochs, shown, color=color, label=part, marker="." if len(epochs) < 40 else "")
        axes.set_xlabel("epoch")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(alpha=0.3)
    loss.set_ylabel("mean loss")
    error.set_ylabel("error (%)")
    error.set_ylim(0, min(100.0, 1.1 * max(100 * (1 - record.test_accuracy) for record in records) + 1))
    reference = find_reference(config)
    if reference is not None:
        error.axhline(
            reference, color="gray", linestyle="--", label=f"paper, BC-100-12 after {_paper_epochs(config)} epochs"
        )
    rate = loss.twinx()
    rate.plot(epochs, [record.learning_rate for record in records], color="gray", alpha=0.5, linestyle=":")
    rate.set_ylabel("learning rate (dotted)")
    rate.set_ylim(bottom=0)
    for axes in (loss, rate):
        # Numbers that are too long for the margin get a common factor above the axis.
        axes.ticklabel_format(axis="y", scilimits=(-3, 5))
    loss.legend()
    error.legend()
    last = records[-1]
    title = f"{show(config.dataset)} by {config.model}: test accuracy {last.test_accuracy:.2%} after epoch {last.epoch}"
    figure.suptitle(title, parse_math=False, family=choose_fonts(title))
    with replacing(path) as file:
        figure.savefig(file, format="png", dpi=110)


def find_reference(config: TrainConfig) -> float | None:
    """Return the test error in percent that the paper reports for this data and these labels, or None."""
    if config.labels != "fine" or config.extra:
        return None
    table = config.facts.get("reference", {})
    value = table.get("augmented" if config.augment else "plain")
    return None if value is None else float(value)


def _paper_epochs(config: TrainConfig) -> int:
    return int(config.facts["epochs"]["paper"])


@explain_errors
def main(argv: Sequence[str]) -> int:
    if not argv or argv[0] in {"-h", "--help"}:
        output.show("usage: python -m train plot RUN…")
        return 0 if argv else 2
    for folder in argv:
        output.show(str(draw(Path(folder))))
    return 0


COLUMNS: Final = 100
LABEL: Final = 28
"""Width of the name of a class beside a confusion matrix, in letters."""


def per_class_accuracy(confusion: NDArray[np.int64]) -> list[float | None]:
    totals = confusion.sum(axis=1)
    return [float(confusion[i, i] / total) if total else None for i, total in enumerate(totals.tolist())]


def write_confusion(folder: Path, confusion: NDArray[np.int64], names: Sequence[str]) -> None:
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")  # a folder's name may have commas and quotes
    table.writerow(["true", *names])
    table.writerows([name, *row] for name, row in zip(names, confusion.tolist(), strict=True))
    write_text(folder / CONFUSION, text.getvalue())
    _draw_confusion(folder / "confusion.png", confusion, names)


def _draw_confusion(path: Path, confusion: NDArray[np.int64], names: Sequence[str]) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 5.6), layout="constrained")
    axes = figure.subplots()
    shares = confusion / np.maximum(confusion.sum(axis=1, keepdims=True), 1)
    image = axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    figure.colorbar(image, label="share of the true class")
    if len(names) <= 20:
        shown = [shorten(names, label, width=LABEL) for label in range(len(names))]
        axes.set_xticks(range(len(names)), shown, rotation=45, ha="right", parse_math=False)
        axes.set_yticks(range(len(names)), shown, parse_math=False)
        for label in (*axes.get_xticklabels(), *axes.get_yticklabels()):
            label.set_fontfamily(choose_fonts(label.get_text()))
        for (row, column), count in np.ndenumerate(confusion):
            color = "white" if shares[row, column] > 0.5 else "black"
            axes.text(column, row, str(count) if count else "", ha="center", va="center", color=color, fontsize=8)
    axes.set_xlabel("predicted")
    axes.set_ylabel("true")
    with replacing(path) as file:
        figure.savefig(file, format="png", dpi=110)


def write_summary(path: Path, model: Any) -> None:
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = str(COLUMNS)  # Keras cuts lines at the terminal's width, whatever `line_length` is
    try:
        model.summary(print_fn=lambda text: write_text(path, text), line_length=COLUMNS)
    finally:
        os.environ.pop("COLUMNS")
        if before is not None:
            os.environ["COLUMNS"] = before


def draw_model(path: Path, config: TrainConfig) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.2), layout="constrained")
    axes = figure.subplots()
    size = -(-config.shape[0] // 4) if config.stem == "imagenet" else config.shape[0]
    left = 0.0
    for number, (layers, channels) in enumerate(zip(config.layers, config.list_channels(), strict=True), start=1):
        heights = [channels + config.growth * index for index in range(layers + 1)]
        axes.bar([left + index for index in range(layers + 1)], heights, width=0.8, color=f"C{number - 1}")
        axes.text(left + layers / 2, heights[-1] * 1.02, f"{layers} layers, {size}x{size}", ha="center", va="bottom")
        left, size = left + layers + 3, size // 2
    axes.set_ylabel("channels")
    axes.set_xticks([])
    axes.margins(y=0.15)
    kind = "bottleneck layers" if config.bottleneck else "plain layers"
    axes.set_title(f"DenseNet {config.model}: {kind} that add {config.growth} maps each")
    with replacing(path) as file:
        figure.savefig(file, format="png", dpi=110)
