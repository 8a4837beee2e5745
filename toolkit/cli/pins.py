from pathlib import Path
from typing import Annotated

import typer

from toolkit.cli.command import Session, command
from toolkit.versions.set import VERSIONS
from toolkit.wheel.build_options import BuildOptions


@command("platform")
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
) -> None:
    """Show the version table: TensorFlow, CUDA and its drivers, known failures and what is done about each."""
    from dataclasses import asdict

    from toolkit.diagnosis import list_known
    from toolkit.versions.matrix import list_cells, narrow, render, render_grid
    from toolkit.versions.table import load_table, split_span

    settings, table = session.settings, load_table()
    shown = narrow(table, only_tensorflow, only_cuda) if only_tensorflow or only_cuda else table
    if grid:
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
        **{name: [asdict(row) for row in rows.values()] for name, rows in shown.libraries.items()},
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


@command(
    "platform",
    *VERSIONS,
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
    from toolkit.versions import lock
    from toolkit.wheel import lock_file

    console, path = session.console, Path(lock.FILE)
    request = lock_file.LockRequest(
        settings=session.settings,
        capabilities=options.compute_capability,
        apt_snapshot=options.apt_snapshot,
        day=exclude_newer,
    )
    shown = lock_file.check(request, path) if check else lock_file.write(request, path, console)
    known = f"{len(shown.pins) - len(shown.floating)} of {len(shown.pins)} pins are known"
    lines = [f"{path}: {known}; {lock.describe_pinning(shown.floating)}"]
    lines += [f"  run-time set {name}" for name in shown.sets]
    console.result(
        {"file": str(path), "level": shown.level, "floating": list(shown.floating), **shown.describe()},
        "\n".join(lines + [f"  {line}" for line in lock.describe_floating(shown.floating)]),
    )
