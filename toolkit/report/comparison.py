"""Describes several runs side by side: what differs, how each ended, and whether their chains are the same."""

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from typing import Any, Final

from toolkit.base.digest import shorten
from toolkit.base.findings import State
from toolkit.records import Run
from toolkit.report import chain
from toolkit.report.chain import Known, PageContext
from toolkit.report.page_model import NOTHING, Cell, Chain, Chart, Link, Number, Page, Row, Section, Series, Table, Text
from toolkit.report.run_files import RunFolder, show_loss, show_seconds, show_share
from train.record.metrics import EpochRecord
from train.use.compare import label_runs, list_different

COLORS: Final = tuple(range(2, 10))
"""Colours of curves that are compared; further curves are dashed."""

WIDE: Final = 8
"""Most runs that a table has as columns."""


@dataclass(frozen=True)
class Compared:
    """A run, what is called so here, and the chain behind it."""

    run: RunFolder
    label: str
    links: Chain

    @property
    def result(self) -> Mapping[str, Any]:
        return self.run.result

    @cached_property
    def state(self) -> State:
        return chain.find_worst(link.state for link in self.links.links)

    def find(self, name: str) -> Link | None:
        return next((link for link in self.links.links if link.name == name), None)


def describe_runs(folders: Sequence[Path], context: PageContext) -> Page:
    """Return the page of several runs. Raises a ToolkitError if one is no folder of a run."""
    runs = [RunFolder(folder) for folder in folders]
    configs = [run.config.as_dict() for run in runs]
    compared = list(follow(runs, label_runs(configs), context))
    differing = sorted(name.replace("_", " ") for name in list_different(configs))
    same = len({run.config.digest for run in runs}) == 1
    lead = "They have the same configuration." if same else f"They differ in {', '.join(differing)}."
    groups = {f"{number}. {side.label}": [side.run] for number, side in enumerate(compared, start=1)}
    return Page(
        kind="Comparison",
        title=f"{len(runs)} runs side by side",
        lead=lead,
        numbers=list(_list_best(compared)),
        sections=[
            Section(id="results", title="Results", parts=[_tabulate(compared)]),
            Section(id="curves", title="Curves", parts=list(draw(groups))),
            Section(id="configuration", title="Configuration", parts=_compare_configs(compared)),
            Section(id="chain", title="Where they came from", lead=LEAD, parts=[compare_chains(compared)]),
        ],
        commands=[f"toolkit verify {run.folder}" for run in runs],
    )


LEAD: Final = "A row is a link of the chain; the states are what toolkit verify found."


def follow(runs: Sequence[RunFolder], labels: Sequence[str], context: PageContext) -> Iterator[Compared]:
    known: Known = {}
    for run, label in zip(runs, labels, strict=True):
        artifact = Run(folder=run.folder, state=context.state)
        yield Compared(run, label, chain.follow(artifact, context, known))


def _list_best(compared: Sequence[Compared]) -> Iterator[Number]:
    ended = [side for side in compared if side.result]
    if not ended:
        return
    best = max(ended, key=lambda side: float(side.result["test_accuracy"]))
    yield Number(label="Highest test accuracy", text=f"{best.result['test_accuracy']:.2%}", note=best.label)
    least = min(ended, key=lambda side: float(side.result["test_loss"]))
    yield Number(label="Lowest test loss", text=f"{least.result['test_loss']:.4f}", note=least.label)
    seconds = sum(float(side.result["train_seconds"]) for side in ended)
    yield Number(label="Training time together", text=show_seconds(seconds), note=f"{len(ended)} runs")


def _tabulate(compared: Sequence[Compared]) -> Table:
    measures: tuple[tuple[str, str, Callable[[float], str], Callable[..., Any]], ...] = (
        ("test_accuracy", "Test accuracy", show_share, max),
        ("validation_accuracy", "Validation accuracy", show_share, max),
        ("test_loss", "Test loss", show_loss, min),
        ("calibration_error", "Calibration error", show_share, min),
        ("epochs", "Epochs", lambda value: f"{value:.0f}", lambda _: None),
        ("train_seconds", "Training", show_seconds, min),
    )
    shown = [measure for measure in measures if any(measure[0] in run.result for run in compared)]
    best = {name: choose([run.result[name] for run in compared if name in run.result]) for name, _, _, choose in shown}
    rows: list[Row] = []
    for number, run in enumerate(compared, start=1):
        cells: list[Cell | str] = [Cell(text=f"{number}. {run.label}", note=run.run.name)]
        for name, _, form, _ in shown:
            value = run.result.get(name)
            cells.append(
                Cell(text=NOTHING if value is None else form(value), strong=value is not None and value == best[name])
            )
        weights = run.find("weights")
        cells.append(Cell(text=shorten(weights.digest) if weights else NOTHING, code=True))
        cells.append(Cell(text=run.state, tone=run.state))
        rows.append(cells)
    return Table(
        caption="Results; the best of each column is marked",
        columns=("Run", *(title for _, title, _, _ in shown), "Weights", "Chain"),
        rows=rows,
        numeric=frozenset(range(1, len(shown) + 1)),
    )


def draw(groups: Mapping[str, Sequence[RunFolder]]) -> Iterator[Chart | Text]:
    """Draw loss and error of each group of runs: its mean, with a band of one deviation."""
    several = any(len(runs) > 1 for runs in groups.values())
    band = "; the band is one standard deviation" if several else ""
    kinds: tuple[tuple[str, str, str, Callable[[EpochRecord], float], str], ...] = (
        ("test-loss", "Test loss", "mean loss", attrgetter("test_loss"), ""),
        ("test-error", "Test error", "share of images", lambda epoch: 1 - epoch.test_accuracy, "%"),
        ("train-loss", "Training loss", "mean loss", attrgetter("train_loss"), ""),
    )
    drawn = {label: [run.epochs for run in runs if run.epochs] for label, runs in groups.items()}
    drawn = {label: series for label, series in drawn.items() if series}
    if not drawn:
        yield Text(text="No epoch is recorded yet.")
    for id_, title, axis, read, unit in kinds if drawn else ():
        series = [_make_series(label, runs, read, place) for place, (label, runs) in enumerate(drawn.items())]
        ends = sorted((curve.ys[-1], curve.name) for curve in series)
        form = show_share if unit else show_loss
        text = f"At the end, {title.lower()} is lowest for {ends[0][1]} ({form(ends[0][0])})"
        text += f" and highest for {ends[-1][1]} ({form(ends[-1][0])})" if len(ends) > 1 else ""
        yield Chart(id=id_, title=title, x="step", y=axis, series=series, text=f"{text}{band}.", unit=unit)


def _make_series(
    label: str, runs: Sequence[Sequence[EpochRecord]], read: Callable[[EpochRecord], float], place: int
) -> Series:
    epochs = list(zip(*runs, strict=False))  # those that all runs of the group have
    values = [[read(epoch) for epoch in same] for same in epochs]
    means = [statistics.fmean(of_epoch) for of_epoch in values]
    wide = [statistics.stdev(of_epoch) if len(of_epoch) > 1 else 0.0 for of_epoch in values]
    return Series(
        name=label,
        xs=[statistics.fmean(epoch.step for epoch in same) for same in epochs],
        ys=means,
        color=COLORS[place % len(COLORS)],
        dashed=place >= len(COLORS),
        dots=len(epochs) <= 60 and len(runs) == 1,
        band=[(max(0.0, m - w), m + w) for m, w in zip(means, wide, strict=True)] if len(runs) > 1 else (),
    )


def _compare_configs(compared: Sequence[Compared]) -> list[Table | Text]:
    configs = [side.run.config.as_dict() for side in compared]
    names = [
        name for name in configs[0] if len({str(config.get(name)) for config in configs}) > 1 and name != "class_names"
    ]
    if not names:
        return [Text(text="Every option has the same value in all of them.")]
    if len(compared) > WIDE:
        return [
            Table(
                caption="Options that differ",
                columns=("Run", *(name.replace("_", " ") for name in names)),
                rows=[
                    (f"{n}. {c.run.name}", *(str(config.get(name)) for name in names))
                    for n, (c, config) in enumerate(zip(compared, configs, strict=True), start=1)
                ],
            )
        ]
    return [
        Table(
            caption="Options that differ; all others are the same",
            columns=("Option", *(f"{number}. {side.run.name}" for number, side in enumerate(compared, start=1))),
            rows=[(name.replace("_", " "), *(str(config.get(name)) for config in configs)) for name in names],
        )
    ]


def compare_chains(compared: Sequence[Compared]) -> Table:
    """Return a table of the links of all chains. Equal digests in a row mean the same thing."""
    names = list(dict.fromkeys(link.name for side in compared for link in side.links.links))
    rows: list[Row] = []
    for name in names:
        links = [chain.find(name) for chain in compared]
        digests = {link.digest for link in links if link and link.digest}
        same = len(digests) == 1 and all(links)
        cells = [
            Cell(text=shorten(link.digest) or link.state, tone=link.state, note=link.title if name != "weights" else "")
            if link
            else NOTHING
            for link in links
        ]
        rows.append([name, "same" if same else "differ", *cells])
    heads = (f"{number}. {side.label}" for number, side in enumerate(compared, start=1))
    return Table(
        caption="Links by run, with the beginning of each digest", columns=("Link", "Digests", *heads), rows=rows
    )
