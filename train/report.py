"""What is left behind at the end of a run: who was taken for whom, and what the model looks like."""

import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from train.config import TrainConfig
from train.files import replacing, write_text

COLUMNS: Final = 100


def per_class_accuracy(confusion: NDArray[np.int64]) -> list[float | None]:
    """Share of each true class that was recognized; none for a class that the split does not hold."""
    totals = confusion.sum(axis=1)
    return [float(confusion[i, i] / total) if total else None for i, total in enumerate(totals.tolist())]


def write_confusion(folder: Path, confusion: NDArray[np.int64], names: Sequence[str]) -> None:
    """Write ``confusion.csv`` (rows: true class, columns: predicted) and ``confusion.png`` into a run folder."""
    text = io.StringIO()
    text.write(",".join(["true", *names]) + "\n")
    for name, row in zip(names, confusion.tolist(), strict=True):
        text.write(",".join([name, *map(str, row)]) + "\n")
    write_text(folder / "confusion.csv", text.getvalue())
    _draw_confusion(folder / "confusion.png", confusion, names)


def _draw_confusion(path: Path, confusion: NDArray[np.int64], names: Sequence[str]) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 5.6), layout="constrained")
    axes = figure.subplots()
    shares = confusion / np.maximum(confusion.sum(axis=1, keepdims=True), 1)
    image = axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    figure.colorbar(image, label="share of the true class")
    if len(names) <= 20:
        axes.set_xticks(range(len(names)), names, rotation=45, ha="right")
        axes.set_yticks(range(len(names)), names)
        for (row, column), count in np.ndenumerate(confusion):
            color = "white" if shares[row, column] > 0.5 else "black"
            axes.text(column, row, str(count) if count else "", ha="center", va="center", color=color, fontsize=8)
    axes.set_xlabel("predicted")
    axes.set_ylabel("true")
    with replacing(path) as file:
        figure.savefig(file, format="png", dpi=110)


def write_summary(path: Path, model: Any) -> None:
    """Write Keras' table of layers, output shapes and parameters as text, whole whatever the terminal's width is."""
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = str(COLUMNS)  # Keras lays out for the width it is given, and cuts at the terminal's
    try:
        model.summary(print_fn=lambda text: write_text(path, text), line_length=COLUMNS)
    finally:
        os.environ.pop("COLUMNS")
        if before is not None:
            os.environ["COLUMNS"] = before


def draw_model(path: Path, config: TrainConfig) -> None:
    """Draw the network: each dense block as a bar whose height is its channels, with the size of its maps."""
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
