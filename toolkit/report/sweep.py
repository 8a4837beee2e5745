"""Describes a sweep: its points with mean and deviation, the curves of each, every run, and the chain behind them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from toolkit import digest, files, manifest
from toolkit.digest import shorten
from toolkit.errors import IntegrityError
from toolkit.report.chain import PageContext
from toolkit.report.comparison import LEAD, Compared, compare_chains, draw, follow
from toolkit.report.page_model import NOTHING, Cell, Chain, Number, Page, Row, Section, Table
from toolkit.report.run_files import RunFolder, show_loss, show_seconds, show_share
from toolkit.sweep import describe_options

if TYPE_CHECKING:
    from toolkit.findings import State

SHOWN: Final = 3
"""The most runs whose command stands at the end of the page."""


def describe(folder: Path, context: PageContext) -> Page:
    """Return the page of a sweep. Raises IntegrityError if its record is damaged."""
    record = manifest.read(folder)
    facts = dict(record.facts) if record else {}
    try:
        points = [dict(point) for point in facts["points"]]
        members = [dict(member) for member in facts["members"]]
        options = [dict(member["options"]) for member in members]
        places = [_find_member(folder, str(member["run"])) for member in members]
    except (LookupError, TypeError, ValueError) as error:
        raise IntegrityError(
            f"the record of the sweep {folder} is damaged", why=str(error), remedy="`toolkit sweep` writes it again"
        ) from error
    runs = [RunFolder(place) for place in places]
    labels = [describe_options(member_options) or "the only member" for member_options in options]
    there = [number for number, run in enumerate(runs) if run.value]
    compared = dict(zip(there, follow([runs[n] for n in there], [labels[n] for n in there], context), strict=True))
    groups: dict[str, list[RunFolder]] = {}
    for number in there:
        point = describe_options({name: value for name, value in options[number].items() if name != "seed"}) or "all"
        groups.setdefault(point, []).append(runs[number])
    complete = sum(member.get("status") == "complete" for member in members)
    seconds = sum(float(run.result["train_seconds"]) for run in compared.values())
    return Page(
        kind="Sweep",
        title=folder.resolve().name,
        lead=f"{len(members)} runs at {len(points)} points; {complete} are complete.",
        numbers=[
            *_list_winners(points),
            Number(label="Training time together", text=show_seconds(seconds), note=f"{len(there)} runs"),
        ],
        sections=[
            section
            for section in (
                Section(
                    id="points",
                    title="Points",
                    lead="Mean ± deviation over the runs of a point.",
                    parts=_tabulate_points(points, groups),
                ),
                Section(id="curves", title="Curves", parts=list(draw(groups)) if groups else []),
                Section(id="members", title="Runs", parts=[_tabulate_members(members, labels, compared)]),
                Section(id="files", title="Files", parts=[_check_files(folder, facts)]),
                _share_chain(compared),
            )
            if section and section.parts
        ],
        commands=[
            *(f"toolkit verify {members[number]['run']}" for number in there[:SHOWN]),
            *([f"# and {len(there) - SHOWN} more, named in the table of runs"] if len(there) > SHOWN else []),
        ],
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
    yield Number(label=f"Best mean {words}", text=f"{best[f'{measure}_mean']:.2%}", note=str(best["point"]))
    single = max(points, key=lambda row: float(row[f"{measure}_best"]))
    yield Number(label=f"Best {words}", text=f"{single[f'{measure}_best']:.2%}", note=str(single["best"]))


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
        run = compared.get(number)
        name = Path(str(member["run"])).name
        if run is None:
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
        recorded, weights = member.get("weights_sha256"), run.find("weights")
        other = recorded is not None and weights is not None and recorded != weights.digest
        state = (
            Cell(text="other weights than the sweep recorded", tone="fail")
            if other
            else Cell(text=run.state, tone=run.state)
        )
        rows.append(
            [
                Cell(text=f"{number}. {label}", note=name),
                f"{run.result['test_accuracy']:.2%}",
                f"{run.result['test_loss']:.4f}",
                show_seconds(run.result["train_seconds"]),
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
        current = digest.read_file(path) if path.is_file() else ""
        state: State = "absent" if not current else "ok" if current == promised else "fail"
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
        tuple(link for link in run.links.links if link.name not in {"weights", "run"}) for run in compared.values()
    ]
    if not chains:
        return None
    first = {(link.name, link.digest) for link in chains[0]}
    if any({(link.name, link.digest) for link in chain} != first for chain in chains):
        return Section(
            id="chain", title="Where they came from", lead=LEAD, parts=[compare_chains(list(compared.values()))]
        )
    shared = Chain(links=chains[0], trusted=next(iter(compared.values())).links.trusted)
    return Section(
        id="chain", title="Where they came from", lead="All runs have these links in common.", parts=[shared]
    )


def is_sweep(folder: Path) -> bool:
    """Return whether a folder is that of a sweep."""
    value = files.read_json(folder / manifest.FILE)
    return isinstance(value, dict) and value.get("kind") == "sweep"
