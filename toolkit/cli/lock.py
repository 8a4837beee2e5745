"""``toolkit lock``: freeze every pin of the chain, or check that the frozen ones still fit."""

from pathlib import Path
from typing import Annotated

import typer

from toolkit.cli import options
from toolkit.cli.session import Session, command


@command("tensorflow", "python", "cuda", "cudnn", "base_image")
def lock(
    session: Session,
    check: Annotated[bool, typer.Option("--check", help="Write nothing; fail where the lock no longer fits.")] = False,
    compute_capability: options.Capabilities = None,
    apt_snapshot: options.Snapshot = "",
) -> None:
    """Write every pin into toolkit.lock.yaml. What cannot be found out here is named, never guessed."""
    from toolkit import lock as locking
    from toolkit.errors import CheckError
    from toolkit.versions import load_table
    from toolkit.wheel import preparation

    console, settings = session.console, session.settings
    path, table = Path(locking.FILE), load_table()
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
        "\n".join(lines + [f"  {line}" for line in locking.describe_floating(shown.floating)]),
    )
