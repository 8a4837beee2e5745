"""Describes several runs side by side, and sweeps: what differs, how each ended, whether their chains are the same."""

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from typing import Any, Final

from toolkit import digest, files, manifest
from toolkit import sweep as sweeps
from toolkit.digest import shorten
from toolkit.errors import IntegrityError
from toolkit.findings import State
from toolkit.record import Target
from toolkit.report import chain
from toolkit.report.chain import Parents, Trust
from toolkit.report.reading import RunFolder, show_loss, show_seconds, show_share
from toolkit.report.view import NOTHING, Cell, Chain, Chart, Link, Number, Page, Row, Section, Series, Table, Text
from train.record.metrics import EpochRecord
from train.use.compare import label_runs

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


def describe_runs(targets: Sequence[Target], trust: Trust) -> Page:
    """Return the page of several runs. Raises a TrainError: one is no folder of a run."""
    runs = [RunFolder(each.folder) for each in targets]
    labels = label_runs([each.config.as_dict() for each in runs])
    compared = list(_follow(runs, labels, trust))
    same = "configuration" if len(set(map(str, (each.config.digest for each in runs)))) == 1 else ""
    differing = sorted({part.rpartition(" ")[0] for label in labels for part in label.split(", ")} - {"run"})
    lead = f"They have the same {same}." if same else f"They differ in {', '.join(differing)}."
    groups = {f"{number}. {each.label}": [each.run] for number, each in enumerate(compared, start=1)}
    return Page(
        kind="Comparison",
        title=f"{len(runs)} runs side by side",
        lead=lead,
        numbers=list(_list_best(compared)),
        sections=[
            Section(id="results", title="Results", parts=[_tabulate(compared)]),
            Section(id="curves", title="Curves", parts=list(_draw(groups))),
            Section(id="configuration", title="Configuration", parts=_compare_configs(compared)),
            Section(id="chain", title="Where they came from", lead=LEAD, parts=[_compare_chains(compared)]),
        ],
        commands=[f"toolkit verify {each.folder}" for each in runs],
    )


LEAD: Final = "A row is a link of the chain; the states are what toolkit verify found."


def _follow(runs: Sequence[RunFolder], labels: Sequence[str], trust: Trust) -> Iterator[Compared]:
    known = Parents()
    for run, label in zip(runs, labels, strict=True):
        target = Target(kind="run", folder=run.folder)
        yield Compared(run, label, chain.follow(target, chain.verify(target, trust, known), trust))


def _list_best(compared: Sequence[Compared]) -> Iterator[Number]:
    ended = [each for each in compared if each.result]
    if not ended:
        return
    best = max(ended, key=lambda each: float(each.result["test_accuracy"]))
    yield Number(label="highest test accuracy", text=f"{best.result['test_accuracy']:.2%}", note=best.label)
    least = min(ended, key=lambda each: float(each.result["test_loss"]))
    yield Number(label="lowest test loss", text=f"{least.result['test_loss']:.4f}", note=least.label)
    seconds = sum(float(each.result["train_seconds"]) for each in ended)
    yield Number(label="training time together", text=show_seconds(seconds), note=f"{len(ended)} runs")


def _tabulate(compared: Sequence[Compared]) -> Table:
    measures: tuple[tuple[str, str, Callable[[float], str], Callable[..., Any]], ...] = (
        ("test_accuracy", "Test accuracy", show_share, max),
        ("validation_accuracy", "Validation accuracy", show_share, max),
        ("test_loss", "Test loss", show_loss, min),
        ("calibration_error", "Calibration error", show_share, min),
        ("epochs", "Epochs", lambda value: f"{value:.0f}", lambda _: None),
        ("train_seconds", "Training", show_seconds, min),
    )
    shown = [each for each in measures if any(each[0] in one.result for one in compared)]
    best = {name: choose([one.result[name] for one in compared if name in one.result]) for name, _, _, choose in shown}
    rows: list[Row] = []
    for number, one in enumerate(compared, start=1):
        cells: list[Cell | str] = [Cell(text=f"{number}. {one.label}", note=one.run.name)]
        for name, _, form, _ in shown:
            value = one.result.get(name)
            cells.append(
                Cell(text=NOTHING if value is None else form(value), strong=value is not None and value == best[name])
            )
        weights = one.find("weights")
        cells.append(Cell(text=shorten(weights.digest) if weights else NOTHING, code=True))
        cells.append(Cell(text=one.state, tone=one.state))
        rows.append(cells)
    return Table(
        caption="Results; the best of each column is marked",
        columns=("Run", *(title for _, title, _, _ in shown), "Weights", "Chain"),
        rows=rows,
        numeric=frozenset(range(1, len(shown) + 1)),
    )


def _draw(groups: Mapping[str, Sequence[RunFolder]]) -> Iterator[Chart | Text]:
    """Draw loss and error of each group of runs: its mean, with a band of one deviation."""
    several = any(len(runs) > 1 for runs in groups.values())
    band = "; the band is one standard deviation" if several else ""
    kinds: tuple[tuple[str, str, str, Callable[[EpochRecord], float], str], ...] = (
        ("test-loss", "Test loss", "mean loss", attrgetter("test_loss"), ""),
        ("test-error", "Test error", "share of images", lambda epoch: 1 - epoch.test_accuracy, "%"),
        ("train-loss", "Training loss", "mean loss", attrgetter("train_loss"), ""),
    )
    drawn = {label: [run.epochs for run in runs if run.epochs] for label, runs in groups.items()}
    drawn = {label: found for label, found in drawn.items() if found}
    if not drawn:
        yield Text(text="No epoch is recorded yet.")
    for id_, title, axis, read, unit in kinds if drawn else ():
        series = [_make_series(label, runs, read, place) for place, (label, runs) in enumerate(drawn.items())]
        ends = sorted((each.ys[-1], each.name) for each in series)
        form = show_share if unit else show_loss
        text = f"At the end, {title.lower()} is lowest for {ends[0][1]} ({form(ends[0][0])})"
        text += f" and highest for {ends[-1][1]} ({form(ends[-1][0])})" if len(ends) > 1 else ""
        yield Chart(id=id_, title=title, x="step", y=axis, series=series, text=f"{text}{band}.", unit=unit)


def _make_series(
    label: str, runs: Sequence[Sequence[EpochRecord]], read: Callable[[EpochRecord], float], place: int
) -> Series:
    epochs = list(zip(*runs, strict=False))  # those that all runs of the group have
    values = [[read(each) for each in same] for same in epochs]
    means = [statistics.fmean(each) for each in values]
    wide = [statistics.stdev(each) if len(each) > 1 else 0.0 for each in values]
    return Series(
        name=label,
        xs=[statistics.fmean(each.step for each in same) for same in epochs],
        ys=means,
        color=COLORS[place % len(COLORS)],
        dashed=place >= len(COLORS),
        dots=len(epochs) <= 60 and len(runs) == 1,
        band=[(max(0.0, m - w), m + w) for m, w in zip(means, wide, strict=True)] if len(runs) > 1 else (),
    )


def _compare_configs(compared: Sequence[Compared]) -> list[Table | Text]:
    configs = [each.run.config.as_dict() for each in compared]
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
            columns=("Option", *(f"{number}. {each.run.name}" for number, each in enumerate(compared, start=1))),
            rows=[(name.replace("_", " "), *(str(config.get(name)) for config in configs)) for name in names],
        )
    ]


def _compare_chains(compared: Sequence[Compared]) -> Table:
    """Return a table of the links of all chains. Equal digests in a row mean the same thing."""
    names = list(dict.fromkeys(link.name for each in compared for link in each.links.links))
    rows: list[Row] = []
    for name in names:
        links = [each.find(name) for each in compared]
        digests = {link.digest for link in links if link and link.digest}
        same = len(digests) == 1 and all(links)
        cells = [
            Cell(text=shorten(link.digest) or link.state, tone=link.state, note=link.title if name != "weights" else "")
            if link
            else NOTHING
            for link in links
        ]
        rows.append([name, "same" if same else "differ", *cells])
    heads = (f"{number}. {each.label}" for number, each in enumerate(compared, start=1))
    return Table(
        caption="Links by run, with the beginning of each digest", columns=("Link", "Digests", *heads), rows=rows
    )


def describe_sweep(folder: Path, trust: Trust) -> Page:
    """Return the page of a sweep. Raises IntegrityError: its record is damaged."""
    record = manifest.read(folder)
    facts = dict(record.facts) if record else {}
    try:
        points = [dict(each) for each in facts["points"]]
        members = [dict(each) for each in facts["members"]]
        options = [dict(each["options"]) for each in members]
        places = [_find_member(folder, str(each["run"])) for each in members]
    except (LookupError, TypeError, ValueError) as error:
        raise IntegrityError(
            f"the record of the sweep {folder} is damaged", why=str(error), remedy="`toolkit sweep` writes it again"
        ) from error
    runs = [RunFolder(place) for place in places]
    labels = [sweeps.describe(each) or "the only member" for each in options]
    there = [number for number, run in enumerate(runs) if run.value]
    compared = dict(zip(there, _follow([runs[n] for n in there], [labels[n] for n in there], trust), strict=True))
    groups: dict[str, list[RunFolder]] = {}
    for number in there:
        point = sweeps.describe({name: value for name, value in options[number].items() if name != "seed"}) or "all"
        groups.setdefault(point, []).append(runs[number])
    complete = sum(each.get("status") == "complete" for each in members)
    seconds = sum(float(each.result["train_seconds"]) for each in compared.values())
    return Page(
        kind="Sweep",
        title=folder.resolve().name,
        lead=f"{len(members)} runs at {len(points)} points; {complete} are complete.",
        numbers=[
            *_list_winners(points),
            Number(label="training time together", text=show_seconds(seconds), note=f"{len(there)} runs"),
        ],
        sections=[
            each
            for each in (
                Section(
                    id="points",
                    title="Points",
                    lead="Mean ± deviation over the runs of a point.",
                    parts=_tabulate_points(points, groups),
                ),
                Section(id="curves", title="Curves", parts=list(_draw(groups)) if groups else []),
                Section(id="members", title="Runs", parts=[_tabulate_members(members, labels, compared)]),
                Section(id="files", title="Files", parts=[_check_files(folder, facts)]),
                _share_chain(compared),
            )
            if each and each.parts
        ],
        commands=[f"toolkit verify {each['run']}" for each in members[:3]],
    )


def _find_member(folder: Path, recorded: str) -> Path:
    beside = folder.resolve().parent / Path(recorded).name
    return beside if beside.exists() else Path(recorded)


def _list_winners(points: Sequence[Mapping[str, Any]]) -> Iterator[Number]:
    measure = _choose_measure(points)
    if not points or not measure:
        return
    best = max(points, key=lambda row: float(row[f"{measure}_mean"]))
    words = measure.replace("_", " ")
    yield Number(label=f"best mean {words}", text=f"{best[f'{measure}_mean']:.2%}", note=str(best["point"]))
    single = max(points, key=lambda row: float(row[f"{measure}_best"]))
    yield Number(label=f"best {words}", text=f"{single[f'{measure}_best']:.2%}", note=str(single["best"]))


def _choose_measure(points: Sequence[Mapping[str, Any]]) -> str:
    names = ("validation_accuracy", "test_accuracy")
    return next((name for name in names if points and all(f"{name}_mean" in row for row in points)), "")


def _tabulate_points(points: Sequence[Mapping[str, Any]], groups: Mapping[str, Sequence[RunFolder]]) -> list[Table]:
    forms: Mapping[str, Callable[[float], str]] = {
        "validation_accuracy": show_share,
        "test_accuracy": show_share,
        "test_loss": show_loss,
        "train_seconds": show_seconds,
    }
    measures = [name for name in forms if points and all(f"{name}_mean" in row for row in points)]
    chosen = _choose_measure(points)
    everything = [run.result[chosen] for runs in groups.values() for run in runs if chosen in run.result]
    low, high = (min(everything), max(everything)) if everything else (0.0, 1.0)
    best = max((float(row[f"{chosen}_mean"]) for row in points), default=0.0) if chosen else None
    rows: list[Row] = []
    for row in points:
        values = [run.result[chosen] for run in groups.get(str(row["point"]), ()) if chosen in run.result]
        dots = [(value - low) / (high - low) if high > low else 0.5 for value in values]
        wins = chosen and float(row[f"{chosen}_mean"]) == best
        cells: list[Cell | str] = [Cell(text=str(row["point"]), strong=bool(wins)), str(row["runs"])]
        for name in measures:
            deviation = row.get(f"{name}_deviation")
            spread = "" if deviation is None else f" ± {forms[name](float(deviation))}"
            cells.append(
                Cell(text=forms[name](float(row[f"{name}_mean"])) + spread, strong=bool(wins) and name == chosen)
            )
        cells.append(Cell(text=forms[chosen](float(row[f"{chosen}_best"])) if chosen else "", note=str(row["best"])))
        cells.append(Cell(text="", dots=dots))
        rows.append(cells)
    if not rows:
        return []
    axis = f"{forms[chosen](low)} to {forms[chosen](high)}" if chosen else ""
    heads = (name.replace("_", " ").capitalize() for name in measures)
    return [
        Table(
            caption="Points of the sweep; the one with the best mean is marked",
            columns=("Point", "Runs", *heads, "Best", f"Each run, from {axis}"),
            rows=rows,
            numeric=frozenset(range(1, len(measures) + 2)),
        )
    ]


def _tabulate_members(
    members: Sequence[Mapping[str, Any]], labels: Sequence[str], compared: Mapping[int, Compared]
) -> Table:
    rows: list[Row] = []
    for number, (member, label) in enumerate(zip(members, labels, strict=True)):
        one = compared.get(number)
        name = Path(str(member["run"])).name
        if one is None:
            why = str(member.get("reason") or member.get("status"))
            failed = member.get("status") == "failed"
            rows.append(
                [
                    Cell(text=f"{number}. {label}", note=name),
                    NOTHING,
                    NOTHING,
                    NOTHING,
                    NOTHING,
                    Cell(text=why, tone="fail" if failed else "absent"),
                ]
            )
            continue
        recorded, weights = member.get("weights_sha256"), one.find("weights")
        other = recorded is not None and weights is not None and recorded != weights.digest
        state = (
            Cell(text="other weights than the sweep recorded", tone="fail")
            if other
            else Cell(text=one.state, tone=one.state)
        )
        rows.append(
            [
                Cell(text=f"{number}. {label}", note=name),
                f"{one.result['test_accuracy']:.2%}",
                f"{one.result['test_loss']:.4f}",
                show_seconds(one.result["train_seconds"]),
                Cell(text=shorten(weights.digest) if weights else NOTHING, code=True),
                state,
            ]
        )
    columns = ("Run", "Test accuracy", "Test loss", "Training", "Weights", "Chain")
    return Table(caption="Every run of the sweep", columns=columns, rows=rows, numeric=frozenset({1, 2, 3}))


def _check_files(folder: Path, facts: Mapping[str, Any]) -> Table:
    rows: list[Row] = []
    for name, promised in dict(facts.get("files") or {}).items():
        path = folder / Path(str(name)).name
        found = digest.read_file(path) if path.is_file() else ""
        state: State = "absent" if not found else "ok" if found == promised else "fail"
        words = {"ok": "as recorded", "absent": "not here", "fail": "not what was recorded"}
        rows.append(
            [
                str(name),
                Cell(text=words[state], tone=state),
                Cell(text=str(promised).removeprefix("sha256:"), code=True),
            ]
        )
    return Table(caption="Files of the sweep", columns=("File", "State", "SHA-256"), rows=rows)


def _share_chain(compared: Mapping[int, Compared]) -> Section | None:
    """Return the links that all runs have in common: what lies below their weights and configurations."""
    chains = [
        tuple(link for link in each.links.links if link.name not in {"weights", "run"}) for each in compared.values()
    ]
    if not chains:
        return None
    first = {(link.name, link.digest) for link in chains[0]}
    if any({(link.name, link.digest) for link in each} != first for each in chains):
        return Section(
            id="chain", title="Where they came from", lead=LEAD, parts=[_compare_chains(list(compared.values()))]
        )
    shared = Chain(links=chains[0], trusted=next(iter(compared.values())).links.trusted)
    return Section(
        id="chain", title="Where they came from", lead="All runs have these links in common.", parts=[shared]
    )


def is_sweep(folder: Path) -> bool:
    """Return whether a folder is that of a sweep."""
    value = files.read_json(folder / manifest.FILE)
    return isinstance(value, dict) and value.get("kind") == "sweep"
