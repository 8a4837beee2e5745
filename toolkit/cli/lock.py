"""``toolkit lock``: freeze every pin of the chain, or check that the frozen ones still fit."""

from pathlib import Path
from typing import Annotated

import typer

from toolkit.cli import options
from toolkit.cli.guard import guarded


@guarded
def lock(
    check: Annotated[bool, typer.Option("--check", help="Write nothing; fail where the lock no longer fits.")] = False,
    tensorflow: options.Tensorflow = None,
    python: Annotated[str | None, typer.Option(metavar="X.Y", help="Python that the wheel is for.")] = None,
    cuda: Annotated[str | None, typer.Option(metavar="X.Y.Z", help="CUDA release, exactly.")] = None,
    cudnn: Annotated[str | None, typer.Option(metavar="X.Y.Z", help="cuDNN release, exactly.")] = None,
    compute_capability: Annotated[
        list[str] | None, typer.Option(metavar="X.Y", help="GPU to build for; repeatable.")
    ] = None,
    apt_snapshot: Annotated[str, typer.Option(metavar="DAY", help="Day of Debian's archive: 20261121T000000Z.")] = "",
    base_image: options.BaseImage = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
) -> None:
    """Write every pin into toolkit.lock.yaml. What cannot be found out here is named, never guessed."""
    from toolkit import lock as locking
    from toolkit import matrix
    from toolkit.errors import CheckError
    from toolkit.wheel import preparation

    console = options.open_console(json=json, quiet=quiet, verbose=verbose)
    settings = options.resolve_settings(
        console, tensorflow=tensorflow, python=python, cuda=cuda, cudnn=cudnn, base_image=base_image
    )
    path, table = Path(locking.FILE), matrix.load()
    spec = preparation.resolve_spec(settings, compute_capability or ())
    locked = locking.read(path)
    if check and locked is None:
        raise CheckError(f"there is no {path}", remedy="write it: toolkit lock")
    ground = preparation.find_ground(settings, required=False)
    # A new lock keeps nothing of the old one but the day, which nobody but its writer knows.
    present = preparation.collect(spec, table, ground, locked, apt_snapshot)
    if check:
        assert locked is not None  # noqa: S101 - raised above
        locking.require_fit(locked, present)
        shown = locked
    else:
        if not present.pins["tensorflow-commit"]:
            commit = locking.ask_commit(spec.tensorflow)
            present = locking.Lock(spec=present.spec, pins={**present.pins, "tensorflow-commit": commit})
        locking.write(path, present)
        shown = present
    lines = [f"{path}: {len(shown.pins) - len(shown.floating)} of {len(shown.pins)} pins, inputs {shown.rung}"]
    console.result(
        {"file": str(path), "rung": shown.rung, "floating": list(shown.floating), **shown.describe()},
        "\n".join(lines + [f"  {line}" for line in locking.describe_floating(shown)]),
    )
