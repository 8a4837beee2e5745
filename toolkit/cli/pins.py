from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toolkit.cli.command import Session, command
from toolkit.settings import find_own_platform, is_crossed, require_own_platform
from toolkit.wheel.build_options import BuildOptions

if TYPE_CHECKING:
    from toolkit.versions import Table


@command("platform", "base_image", "ca_bundle", engine="docker")
def matrix(
    session: Session,
    only_tensorflow: Annotated[
        str, typer.Option("--tensorflow", metavar="X.Y.Z", help="Show only what concerns this version.")
    ] = "",
    only_cuda: Annotated[
        str, typer.Option("--cuda", metavar="X.Y.Z", help="Show only what concerns this release of CUDA.")
    ] = "",
    grid: Annotated[
        bool, typer.Option("--grid", help="Show each set: proven, refused with reason, or untried.")
    ] = False,
    prove: Annotated[bool, typer.Option("--prove", help="Prove the toolchain of every set, in containers.")] = False,
    compute_capability: Annotated[
        list[str] | None, typer.Option(metavar="X.Y", help="With --prove: prove this alone, such as 9.0; repeatable.")
    ] = None,
    untried: Annotated[bool, typer.Option("--untried", help="With --prove: prove only what is untried here.")] = False,
    jobs: Annotated[int, typer.Option(min=1, help="Proofs at a time.")] = 1,
    refresh: Annotated[
        bool, typer.Option("--refresh", help="Print what the table's sources say differently, as a patch.")
    ] = False,
) -> None:
    """Show the version table: TensorFlow, CUDA and its drivers, known failures and what is done about each.

    On linux/amd64, --prove --platform linux/arm64 proves by a cross compiler; the grid then says `c`, proven (cross).
    """
    from dataclasses import asdict

    from toolkit.diagnosis import list_known
    from toolkit.versions.matrix import list_cells, narrow, render, render_grid
    from toolkit.versions.table import load_table, split_span

    settings, table = session.settings, load_table()
    shown = narrow(table, only_tensorflow, only_cuda) if only_tensorflow or only_cuda else table
    if refresh:
        _refresh(session, table)
        return
    if prove:
        _prove(session, table, compute_capability or [], jobs, untried=untried)
    if grid or prove:
        cells = [
            cell
            for cell in list_cells(table, table.platform(settings.platform).name)
            if cell.tensorflow in shown.tensorflow_rows and cell.cuda in shown.cuda_rows
        ]
        session.console.result({"cells": [asdict(cell) for cell in cells]}, render_grid(cells))
        return
    explained = list_known()
    value = {
        "updated": shown.updated,
        "rows": [asdict(row) for row in shown.rows()],
        "incomplete": [{**asdict(row), "lacks": row.lacks} for row in shown.incomplete.values()],
        "cuda": [asdict(row) for row in shown.cuda_rows.values()],
        "cudnn": [asdict(row) for row in shown.cudnn_rows.values()],
        "bazel": [asdict(row) for row in shown.bazel_rows.values()],
        "platforms": [asdict(row) for row in shown.platforms.values()],
        "toolchains": [asdict(item) for item in shown.toolchains],
        "published": [asdict(item) for item in shown.published],
        "failures": [
            asdict(failure)
            | {"failure": explained.get(failure.id, "")}
            | {"when": {name: split_span(span) for name, span in failure.when.items()}}
            for failure in shown.failures
        ],
        "advisories": [asdict(item) for item in shown.advisories.values()],
        "sources": {name: asdict(source) for name, source in shown.sources.items()},
    }
    references = {name: f"`toolkit diagnose --id {row}`" for name, row in explained.items()}
    session.console.result(value, render(shown, references))


def _prove(session: Session, table: "Table", capabilities: list[str], jobs: int, *, untried: bool) -> None:
    from toolkit.engine.client import connect, select_base
    from toolkit.errors import UsageError
    from toolkit.versions import matrix, numbers, proven_toolchains

    settings, here = session.settings, find_own_platform()
    cross = is_crossed(settings)
    require_own_platform(settings, "a toolchain is proven", crossed=True)
    asked = numbers.list_plain(numbers.normalize_capabilities(capabilities)) if capabilities else ()
    groups = matrix.list_groups(table, settings.platform, asked, untried=untried)
    if not groups and untried:
        return
    if not groups:
        raise UsageError(
            f"no set of {settings.platform} has compute capability {', '.join(asked)}",
            remedy=f"`toolkit matrix --grid --platform {settings.platform}` lists them",
        )
    prover = proven_toolchains.Prover(
        base=select_base(connect(), settings).reference,
        ca_bundle=settings.ca_bundle,
        folder=Path(settings.state) / "proofs",
        platform=settings.platform,
        host=here if cross else "",
    )
    proven_toolchains.prove_all(groups, prover, session.console, jobs=jobs)


def _refresh(session: Session, table: "Table") -> None:
    import datetime as dt

    from toolkit import refresh
    from toolkit.errors import CheckError

    report = refresh.collect(table, dt.datetime.now(dt.UTC).date(), ca_bundle=session.settings.ca_bundle)
    refresh.read_device_names(report, ca_bundle=session.settings.ca_bundle)
    for line in report.describe():
        session.console.say(line)
    drawn = refresh.draw_patch(report)
    value = {"patch": drawn, "read": report.looked, "unread": report.unread, "notes": report.notes}
    session.console.result(value, drawn.removesuffix("\n") or "nothing changed")
    if drawn:
        raise CheckError(
            "the version table differs from its sources",
            remedy="toolkit matrix --refresh > table.patch; git apply table.patch; make pins",
        )


@command(
    "platform",
    "tensorflow",
    "python",
    "cuda",
    "cudnn",
    "base_image",
    "glibc",
    "ca_bundle",
    build=("compute_capability", "apt_snapshot"),
)
def lock(
    session: Session,
    *,
    check: Annotated[bool, typer.Option("--check", help="Write nothing; fail where the lock no longer fits.")] = False,
    options: BuildOptions,
    exclude_newer: Annotated[
        str, typer.Option(metavar="DAY", help="Take no newer packages into a new set; by default the table's day.")
    ] = "",
) -> None:
    """Write every pin into toolkit.lock.yaml. A pin that this machine cannot know is named, never guessed.

    The run-time set of these versions (without --cuda the CPU set) is named too. If the clone has none, it is resolved
    from the version table, with hashes, and written to docker/requirements.
    """
    from toolkit import lock
    from toolkit.wheel import build_inputs

    console, path = session.console, Path(lock.FILE)
    request = build_inputs.LockRequest(
        settings=session.settings,
        capabilities=options.compute_capability,
        apt_snapshot=options.apt_snapshot,
        day=exclude_newer,
    )
    shown = build_inputs.check_lock(request, path) if check else build_inputs.write_lock(request, path, console)
    known = f"{len(shown.pins) - len(shown.floating)} of {len(shown.pins)} pins are known"
    lines = [f"{path}: {known}; {lock.describe_pinning(shown.floating)}"]
    lines += [f"  run-time set {name}" for name in shown.sets]
    console.result(
        {"file": str(path), "level": shown.level, "floating": list(shown.floating), **shown.describe()},
        "\n".join(lines + [f"  {line}" for line in lock.describe_floating(shown.floating)]),
    )
