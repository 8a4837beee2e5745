"""Compares runs in one picture and a table: ``python -m train compare RUN… [--band] [--out FILE]``."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from train.cli import run_command
from train.config.configuration import INCIDENTAL
from train.record.metrics import EpochRecord
from train.record.reader import Run, read_run
from train.system import output
from train.system.files import replacing

MEASURES: Final = ("validation_accuracy", "test_accuracy", "test_loss", "train_seconds")
"""Results that are compared, as manifests of runs name them; the first that all runs have chooses the best."""

Results = Mapping[str, Mapping[str, Any]]
"""The result of each run in its manifest, by a name of the run."""


def list_different(configs: Sequence[Mapping[str, Any]], *, leave_out: frozenset[str] = frozenset()) -> list[str]:
    """Return the names of the decisive options whose values differ between the configurations."""
    names = [name for name in configs[0] if name not in INCIDENTAL | leave_out]
    return [name for name in names if len({str(config.get(name)) for config in configs}) > 1]


def label_runs(configs: Sequence[Mapping[str, Any]], *, leave_out: frozenset[str] = frozenset()) -> list[str]:
    different = list_different(configs, leave_out=leave_out)
    if not different:
        return ["all runs"] * len(configs) if leave_out else [f"run {number}" for number in range(1, len(configs) + 1)]
    return [", ".join(f"{name.replace('_', ' ')} {config.get(name)}" for name in different) for config in configs]


def group_runs(runs: Sequence[Run], *, band: bool) -> dict[str, list[Run]]:
    """Return runs by what differs between them; with ``band``, those that differ in their seeds alone together."""
    labels = label_runs([run.config.as_dict() for run in runs], leave_out=frozenset({"seed"} if band else ()))
    groups: dict[str, list[Run]] = {}
    for number, (label, run) in enumerate(zip(labels, runs, strict=True), start=1):
        equal = not band and label in groups
        groups.setdefault(f"{label} (run {number})" if equal else label, []).append(run)
    return groups


def tabulate(groups: Mapping[str, Results]) -> list[dict[str, Any]]:
    """Return a row for each group of runs with mean, deviation and best of each of the `MEASURES` that all runs have.

    The deviation is that of a sample (n - 1), and None for one run.
    """
    everything = [result for results in groups.values() for result in results.values()]
    measures = [name for name in MEASURES if all(name in result for result in everything)]
    rows = []
    for label, results in groups.items():
        row: dict[str, Any] = {"point": label, "runs": len(results)}
        best = max(results, key=lambda name: float(results[name][measures[0]]))
        for measure in measures:
            values = [float(result[measure]) for result in results.values()]
            row[f"{measure}_mean"] = statistics.fmean(values)
            row[f"{measure}_deviation"] = statistics.stdev(values) if len(values) > 1 else None
            row[f"{measure}_best"] = float(results[best][measure])
        rows.append(row | {"best": best})
    return rows


def render(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the rows of `tabulate` as a table of text, with the point that has the best mean below it."""
    measures = [name for name in MEASURES if f"{name}_mean" in rows[0]]
    words = [name.replace("_", " ") for name in measures]
    lines = [["", "runs", *words, f"best {words[0]}"]]
    for row in rows:
        cells = [_show(name, row[f"{name}_mean"], row[f"{name}_deviation"]) for name in measures]
        best = f"{_show(measures[0], row[f'{measures[0]}_best'], None)} ({row['best']})"
        lines.append([row["point"], str(row["runs"]), *cells, best])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    text = "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)
    first = max(rows, key=lambda row: float(row[f"{measures[0]}_mean"]))
    return f"{text}\nbest by its mean {words[0]}: {first['point']}"


def _show(measure: str, mean: float, deviation: float | None) -> str:
    share = measure.endswith("accuracy")
    form: Callable[[float], str] = (lambda value: f"{value:.2%}") if share else (lambda value: f"{value:.4g}")
    unit = " s" if measure.endswith("seconds") else ""
    return form(mean) + ("" if deviation is None else f" ± {form(deviation)}") + unit


def draw(groups: Mapping[str, Sequence[Run]], path: Path) -> None:
    """Draw the mean of each group of runs by epoch and by time, with a band of one standard deviation."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 7), layout="constrained")
    panels = figure.subplots(2, 2, sharey="row")
    for label, runs in groups.items():
        epochs = list(zip(*(run.epochs for run in runs), strict=False))  # those that all runs of the group have
        for column, along in enumerate(("epoch", "seconds")):
            places = [_mean(same_epoch, attrgetter(along)) for same_epoch in epochs]
            for axes, read in ((panels[0][column], _read_loss), (panels[1][column], _read_error)):
                means = [_mean(same_epoch, read) for same_epoch in epochs]
                (line,) = axes.plot(places, means, marker=".", label=label)
                if len(runs) > 1:
                    wide = [statistics.stdev(map(read, same_epoch)) for same_epoch in epochs]
                    low, high = ([mean + sign * by for mean, by in zip(means, wide, strict=True)] for sign in (-1, 1))
                    axes.fill_between(places, low, high, color=line.get_color(), alpha=0.2, linewidth=0)
    for column, along in enumerate(("epoch", "seconds of training")):
        panels[1][column].set_xlabel(along)
    panels[0][0].set_ylabel("training loss")
    panels[1][0].set_ylabel("test error (%)")
    for axes in panels.flat:
        axes.grid(alpha=0.3)
    panels[0][0].legend(fontsize=8)
    if any(len(runs) > 1 for runs in groups.values()):
        figure.suptitle("mean over seeds, with a band of one standard deviation")
    with replacing(path) as file:
        figure.savefig(file, format="png", dpi=110)


def _mean(records: Sequence[EpochRecord], read: Callable[[EpochRecord], float]) -> float:
    return statistics.fmean(map(read, records))


def _read_loss(record: EpochRecord) -> float:
    return record.train_loss


def _read_error(record: EpochRecord) -> float:
    return 100 * (1 - record.test_accuracy)


def _describe(run: Run) -> dict[str, float]:
    last = run.epochs[-1]
    return {"test_accuracy": last.test_accuracy, "test_loss": last.test_loss, "train_seconds": last.seconds}


def _collect(
    runs: Annotated[list[Path], typer.Argument(help="Run folders.", metavar="RUN…")],
    out: Annotated[Path, typer.Option(help="Picture to write.", metavar="FILE")] = Path("comparison.png"),
    band: Annotated[bool, typer.Option("--band", help="One curve for runs that differ in their seeds alone.")] = False,
) -> int:
    """Draw runs against each other, and print how each ended."""
    groups = group_runs([read_run(folder) for folder in runs], band=band)
    draw(groups, out)
    if band:
        output.show(
            render(tabulate({label: {r.config.run_dir.name: _describe(r) for r in g} for label, g in groups.items()}))
        )
    else:
        for label, (run, *_) in groups.items():
            last = run.epochs[-1]
            output.show(f"{last.test_accuracy:.2%} after epoch {last.epoch}, {last.seconds:.0f} s: {label}")
    output.show(str(out))
    return 0


def main(argv: Sequence[str]) -> int:
    """Run the command, and return its exit code."""
    return run_command(_collect, "compare", argv)
