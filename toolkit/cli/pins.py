import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toolkit.cli.command import Capabilities, Session, Snapshot, command

if TYPE_CHECKING:
    from toolkit.versions.grid import Cell
    from toolkit.versions.table import Failure, Table

TENSORFLOW = ("TensorFlow", "Python", "Bazel", "CUDA", "cuDNN", "tested", "sources")
GRID = {"proven": "+", "failed": "x", "refused": "-", "untried": "?"}
CUDA = ("CUDA", "driver", "oldest driver", "capabilities", "built here", "sources")


@command("base_image", "ca_bundle", engine="docker")
def matrix(
    session: Session,
    grid: Annotated[
        bool, typer.Option("--grid", help="Show each set: proven, refused with reason, or untried.")
    ] = False,
    prove: Annotated[bool, typer.Option("--prove", help="Prove the toolchain of every set, in containers.")] = False,
    jobs: Annotated[int, typer.Option(min=1, help="Proofs at a time.")] = 1,
    refresh: Annotated[
        bool, typer.Option("--refresh", help="Print what the table's sources say differently, as a patch.")
    ] = False,
) -> None:
    """Show the version table: TensorFlow, CUDA and its drivers, known failures and what is done about each."""
    from dataclasses import asdict

    from toolkit.versions.grid import list_cells
    from toolkit.versions.table import load_table, split_span

    table = load_table()
    if refresh:
        _refresh(session, table)
        return
    if prove:
        _prove(session, table, jobs)
    if grid or prove:
        cells = list(list_cells(table))
        session.console.result({"cells": [asdict(cell) for cell in cells]}, render_grid(cells))
        return
    value = {
        "updated": table.updated,
        "rows": [asdict(row) for row in table.rows()],
        "incomplete": [{**asdict(row), "lacks": row.lacks} for row in table.incomplete.values()],
        "cuda": [asdict(row) for row in table.cuda_rows.values()],
        "cudnn": [asdict(row) for row in table.cudnn_rows.values()],
        "bazel": [asdict(row) for row in table.bazel_rows.values()],
        "toolchains": [asdict(item) for item in table.toolchains],
        "published": [asdict(item) for item in table.published],
        "failures": [
            asdict(failure) | {"when": {name: split_span(span) for name, span in failure.when.items()}}
            for failure in table.failures
        ],
        "sources": {name: asdict(source) for name, source in table.sources.items()},
    }
    session.console.result(value, render(table))


def _prove(session: Session, table: "Table", jobs: int) -> None:
    from toolkit import proving
    from toolkit.engine.client import connect, select_base
    from toolkit.errors import CheckError
    from toolkit.versions.grid import list_groups

    settings = session.settings
    base = select_base(connect(), settings).reference
    prover = proving.Prover(base=base, ca_bundle=settings.ca_bundle, folder=Path(settings.state) / "proofs")
    made = proving.prove_all(list_groups(table), prover, session.console, jobs=jobs)
    failed = [f"{' '.join(proof.place)}: {', '.join(proof.failed)}" for proof in made if proof.failed]
    if failed:
        raise CheckError(
            "the table has sets that do not compile",
            why="; ".join(failed),
            remedy="`toolkit matrix --grid` shows why; refuse them in toolkit/versions/table.yaml",
        )


def render_grid(cells: Sequence["Cell"], *, refusals: bool = True) -> str:
    """Return a table for each TensorFlow: a row for each CUDA, a column for each capability; then what is refused."""
    lines: list[str] = []
    for tensorflow in dict.fromkeys(cell.tensorflow for cell in cells):
        mine = [cell for cell in cells if cell.tensorflow == tensorflow]
        lines.append(f"TensorFlow {tensorflow}, Python {', '.join(mine[0].pythons)}")
        lines += [f"  {line}" for line in _align(list(_list_grid([cell for cell in mine if cell.clang])))]
        lines += [f"  {line}" for line in _list_refusals(mine)] if refusals else []
    count = {state: sum(cell.state == state for cell in cells) for state in GRID}
    legend = ", ".join(f"{mark} {state} ({count[state]})" for state, mark in GRID.items())
    return "\n".join([*lines, f"{legend}; each for every Python of its TensorFlow"])


def _list_grid(cells: Sequence["Cell"]) -> Iterable[Sequence[str]]:
    columns = sorted({cell.capability for cell in cells}, key=lambda text: (float(text.rstrip("af")), text))
    yield "CUDA", *columns, "clang", "proven on"
    for cuda in dict.fromkeys(cell.cuda for cell in cells):
        row = {cell.capability: cell for cell in cells if cell.cuda == cuda}
        marks = [GRID[row[column].state] if column in row else "" for column in columns]
        dates = ", ".join(sorted({cell.date for cell in row.values() if cell.date}))
        yield cuda, *marks, ", ".join(dict.fromkeys(cell.clang for cell in row.values())), dates or "-"


def _list_refusals(cells: Sequence["Cell"]) -> Iterable[str]:
    open_to_some = {cell.cuda for cell in cells if not cell.why}
    places: dict[str, list[str]] = {}
    for cell in cells:
        if cell.why:
            why = cell.why.replace(f"CUDA {cell.cuda}", "CUDA").replace(f"capability {cell.capability}", "capability")
            place = f"{cell.cuda} for {cell.capability}" if cell.cuda in open_to_some else cell.cuda
            places.setdefault(why, []).append(place)
    for why, found in places.items():
        yield f"{', '.join(dict.fromkeys(found))}: {why}"


def _refresh(session: Session, table: "Table") -> None:
    import datetime as dt

    from toolkit import refresh
    from toolkit.errors import CheckError, PreflightError
    from toolkit.versions import patch
    from toolkit.versions.table import PATH

    if session.settings.ca_bundle:
        os.environ |= dict.fromkeys(("PIP_CERT", "GIT_SSL_CAINFO"), session.settings.ca_bundle)
    report = refresh.collect(table, dt.datetime.now(dt.UTC).date())
    for line in report.describe():
        session.console.say(line)
    if not report.looked:
        raise PreflightError(
            "no source of the version table can be read",
            why=report.unread[0],
            remedy="let pip reach a package index, and git TensorFlow's repository",
        )
    before = PATH.read_text()
    drawn = patch.draw(before, patch.apply(before, report.changes))
    value = {"patch": drawn, "read": report.looked, "unread": report.unread, "notes": report.notes}
    session.console.result(value, drawn.removesuffix("\n") or "nothing changed")
    if drawn:
        raise CheckError(
            "the version table differs from its sources",
            remedy="toolkit matrix --refresh > table.patch; git apply table.patch; make pins",
        )


def render(table: "Table") -> str:
    notes = [f"  {name}: {source.what}, {source.date}" for name, source in sorted(table.sources.items())]
    parts = [
        [*_align([TENSORFLOW, *_list_tensorflow(table)]), *_list_incomplete(table)],
        _align([CUDA, *_list_cuda(table)]),
        ["known failures", *(line for failure in table.failures for line in _describe(failure))],
        [f"updated {table.updated}; sources:", *notes],
    ]
    return "\n\n".join("\n".join(lines) for lines in parts)


def _list_tensorflow(table: "Table") -> Iterable[Sequence[str]]:
    for row in table.rows():
        tested, sources = "yes" if row.tested else "no", ", ".join(row.sources)
        yield row.version, _span(row.python), row.bazel, _span(row.cuda), _span(row.cudnn), tested, sources


def _list_incomplete(table: "Table") -> Iterable[str]:
    for row in table.incomplete.values():
        yield f"{row.version} is refused; it lacks"
        yield from (f"  {each}" for each in row.lacks)


def _list_cuda(table: "Table") -> Iterable[Sequence[str]]:
    for row in table.cuda_rows.values():
        # Without locked parts the toolchain cannot be tested, so that no wheel is built.
        built, sources = "yes" if row.parts else "no", ", ".join(row.sources)
        yield row.version, row.driver or "-", row.driver_min or "-", _span(row.capabilities), built, sources


def _describe(failure: "Failure") -> Iterable[str]:
    from toolkit.versions.table import split_span

    span = " and ".join(f"{name} {_bound(split_span(span))}" for name, span in failure.when.items())
    yield f"  {failure.id}{f', {span}' if span else ''}: {failure.symptom} ({', '.join(failure.issues)})"
    yield f"    answer: {failure.ours}"


def _bound(span: Mapping[str, str]) -> str:
    bounds = (("from", span["since"]), ("before", span["before"]))
    return " ".join(f"{word} {version}" for word, version in bounds if version)


def _align(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _span(versions: Sequence[str]) -> str:
    return f"{versions[0]} … {versions[-1]}" if len(versions) > 1 else "".join(versions) or "-"


@command("tensorflow", "python", "cuda", "cudnn", "base_image", "ca_bundle")
def lock(
    session: Session,
    check: Annotated[bool, typer.Option("--check", help="Write nothing; fail where the lock no longer fits.")] = False,
    compute_capability: Capabilities = None,
    apt_snapshot: Snapshot = "",
    exclude_newer: Annotated[
        str, typer.Option(metavar="DAY", help="Take no newer packages into a new set; by default the table's day.")
    ] = "",
) -> None:
    """Write every pin into toolkit.lock.yaml. A pin that this machine cannot know is named, never guessed.

    The run-time set of these versions (without --cuda the CPU set) is named too. If the clone has none, it is resolved
    from the version table, with hashes, and written to docker/requirements.
    """
    from dataclasses import replace

    from toolkit import lock as locking
    from toolkit.errors import CheckError
    from toolkit.versions import find_locked, load_table, plan_set
    from toolkit.wheel import request as requests

    console, settings = session.console, session.settings
    path, table = Path(locking.FILE), load_table()
    runtime = plan_set(table, settings.tensorflow, settings.python, settings.cuda, settings.cudnn)
    spec = requests.resolve_spec(settings, compute_capability or ())
    locked = locking.read(path)
    if check and locked is None:
        raise CheckError(f"there is no {path}", remedy="write it: toolkit lock")
    if not check and not find_locked(table, settings.tensorflow, settings.python, settings.cuda, settings.cudnn):
        from toolkit import requirements

        with console.timed("set", runtime.requirements):
            requirements.make(runtime, table, day=exclude_newer or table.updated, ca_bundle=settings.ca_bundle)
        spec = requests.resolve_spec(settings, compute_capability or ())
    images = requests.find_images(settings, required=False)
    # Only the writer of the old lock knows why its day was chosen, so a new lock keeps it.
    present = requests.collect_pins(spec, table, images, locked, apt_snapshot)
    if check:
        assert locked is not None  # noqa: S101 - raised above
        locking.require_fit(locked, present)
        shown = locked
    else:
        if not present.pins["tensorflow-commit"]:
            commit = locking.ask_commit(spec.tensorflow)
            present = replace(present, pins={**present.pins, "tensorflow-commit": commit})
        named = locking.name_set(runtime.requirements)
        present = replace(present, sets={name: value for name, value in named.items() if name not in present.pins})
        locking.write(path, present)
        shown = present
    lines = [f"{path}: {len(shown.pins) - len(shown.floating)} of {len(shown.pins)} pins, inputs {shown.rung}"]
    lines += [f"  run-time set {name}" for name in shown.sets]
    console.result(
        {"file": str(path), "rung": shown.rung, "floating": list(shown.floating), **shown.describe()},
        "\n".join(lines + [f"  {line}" for line in locking.describe_floating(shown.floating)]),
    )
