"""``python -m train.plot RUN…``: draw the curves of a run from its own files."""

import sys
from collections.abc import Sequence
from pathlib import Path

from train.config import TrainConfig, read_table
from train.errors import TrainError
from train.files import replacing
from train.metrics import EpochRecord
from train.recorded import read_run


def draw(folder: Path) -> Path:
    """Draw ``curves.png`` of a run folder; returns its path.

    Raises:
        DataError: the folder is not that of a run, or its first epoch is not over.
    """
    config, records = read_run(folder)
    path = folder / "curves.png"
    draw_records(records, config, path)
    return path


def draw_records(records: Sequence[EpochRecord], config: TrainConfig, path: Path) -> None:
    """Draw loss and error over epochs, the learning rate below, and the paper's number where there is one."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    # Fixed margins: finding them takes as long as the drawing, after each epoch.
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
        # A common factor above the axis, where the numbers would be longer than the margin is wide.
        axes.ticklabel_format(axis="y", scilimits=(-3, 5))
    loss.legend()
    error.legend()
    last = records[-1]
    figure.suptitle(
        f"{config.dataset} by {config.model}: test accuracy {last.test_accuracy:.2%} after epoch {last.epoch}"
    )
    with replacing(path) as file:
        figure.savefig(file, format="png", dpi=110)


def find_reference(config: TrainConfig) -> float | None:
    """Test error in percent that the paper reports for this data, if it does and the labels are the paper's."""
    if config.labels != "fine" or config.extra:
        return None
    table = read_table("datasets")[config.dataset].get("reference", {})
    value = table.get("augmented" if config.augment else "plain")
    return None if value is None else float(value)


def _paper_epochs(config: TrainConfig) -> int:
    return int(read_table("datasets")[config.dataset]["epochs"]["paper"])


def main(argv: Sequence[str]) -> int:
    """Draw the runs named on the command line."""
    if not argv or argv[0] in {"-h", "--help"}:
        print("usage: python -m train.plot RUN…")
        return 0 if argv else 2
    try:
        for folder in argv:
            print(draw(Path(folder)))
    except TrainError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
