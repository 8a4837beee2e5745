"""Draws runs against each other: ``python -m train.compare RUN… [--out FILE]``."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from train.config import INCIDENTAL
from train.errors import TrainError
from train.files import replacing
from train.reader import Run, read_run


def label_runs(configs: Sequence[dict[str, Any]]) -> list[str]:
    names = [name for name in configs[0] if name not in INCIDENTAL]
    different = [name for name in names if len({str(config.get(name)) for config in configs}) > 1]
    if not different:
        return [f"run {number}" for number in range(1, len(configs) + 1)]
    return [", ".join(f"{name.replace('_', ' ')} {config.get(name)}" for name in different) for config in configs]


def draw(runs: Sequence[Run], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 7), layout="constrained")
    panels = figure.subplots(2, 2, sharey="row")
    for label, (_, records) in zip(label_runs([run.config.as_dict() for run in runs]), runs, strict=True):
        for column, along in enumerate(("epoch", "seconds")):
            places = [getattr(record, along) for record in records]
            panels[0][column].plot(places, [record.train_loss for record in records], marker=".", label=label)
            errors = [100 * (1 - record.test_accuracy) for record in records]
            panels[1][column].plot(places, errors, marker=".", label=label)
    for column, along in enumerate(("epoch", "seconds of training")):
        panels[1][column].set_xlabel(along)
    panels[0][0].set_ylabel("training loss")
    panels[1][0].set_ylabel("test error (%)")
    for axes in panels.flat:
        axes.grid(alpha=0.3)
    panels[0][0].legend(fontsize=8)
    with replacing(path) as file:
        figure.savefig(file, format="png", dpi=110)


def _collect(
    runs: Annotated[list[Path], typer.Argument(help="Run folders.", metavar="RUN…")],
    out: Annotated[Path, typer.Option(help="Picture to write.", metavar="FILE")] = Path("comparison.png"),
) -> None:
    """Draw runs against each other, and print how each ended."""
    read = [read_run(folder) for folder in runs]
    draw(read, out)
    for label, (_, records) in zip(label_runs([run.config.as_dict() for run in read]), read, strict=True):
        last = records[-1]
        print(f"{last.test_accuracy:.2%} after epoch {last.epoch}, {last.seconds:.0f} s: {label}")
    print(out)


def main(argv: Sequence[str] | None = None) -> int:
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    app.command()(_collect)
    try:
        app(None if argv is None else list(argv), standalone_mode=argv is None)
    except TrainError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
