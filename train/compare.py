"""Draws the curves of several runs in one picture: ``python -m train.compare RUN… [--out FILE]``."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from train.cli import make_app
from train.errors import explain_errors
from train.fields import INCIDENTAL
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
            values = [getattr(record, along) for record in records]
            panels[0][column].plot(values, [record.train_loss for record in records], marker=".", label=label)
            errors = [100 * (1 - record.test_accuracy) for record in records]
            panels[1][column].plot(values, errors, marker=".", label=label)
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


@explain_errors
def main(argv: Sequence[str] | None = None) -> int:
    make_app(_collect)(None if argv is None else list(argv), standalone_mode=argv is None)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
