from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolkit.base.errors import UsageError
from toolkit.base.project import DIST
from toolkit.cli.command import AllowUnsigned, DryRun, From, Out, Session, Sign, Trust, command
from toolkit.cli.results import load_key
from toolkit.jobs.wheels import obtain_graft, order, read_origin

if TYPE_CHECKING:
    from toolkit.graft.graft_plan import Mode

Cards = Annotated[
    list[str] | None, typer.Option("--gpu", metavar="NAME", help="A card such as `RTX 5090`; repeatable.")
]
Numbers = Annotated[
    list[str] | None, typer.Option(metavar="X.Y", help="Compute capability in place of a card; repeatable.")
]


@command("tensorflow", "python", "ca_bundle", remember=True, long=True)
def graft(
    session: Session,
    gpu: Cards = None,
    compute_capability: Numbers = None,
    wheel: Annotated[
        Path | None, typer.Option(metavar="FILE|DIR", help="A wheel of your own; by default the published one.")
    ] = None,
    only: Annotated[bool, typer.Option("--only", help="Drop the machine code of all other GPUs; PTX stays.")] = False,
    repair: Annotated[
        bool,
        typer.Option(
            "--repair",
            help="Add no machine code: only let PTX for 9.0a run on later cards, and correct the search paths.",
        ),
    ] = False,
    exact: Annotated[
        bool,
        typer.Option(
            "--exact",
            help="Let the extra and-cuda require the very versions of the run-time set.",
        ),
    ] = False,
    out: Out = DIST,
    from_: From = "",
    trust: Trust = None,
    allow_unsigned: AllowUnsigned = False,
    sign_: Sign = "",
    dry_run: DryRun = False,
) -> None:
    """Put machine code for a later GPU into a TensorFlow wheel, in minutes, without building TensorFlow.

    The wheel's PTX is assembled by the ptxas of the CUDA that knows the card, and each kernel is compared with that of
    earlier GPUs. The search paths by which it finds NVIDIA's libraries are corrected. By default the newest published
    wheel is taken, with a local version such as 2.21.0+sm120. Nothing but Python is needed: no container engine, no
    GPU, no root. An interrupted graft goes on where it stopped.

    With --from, a registry is asked for the same graft first.
    """
    from toolkit.base import project
    from toolkit.base.steps import Plan, print_plan
    from toolkit.graft import graft_plan
    from toolkit.jobs.choice import read_wheel_option
    from toolkit.versions.table import load_table
    from toolkit.wheel import inspection

    console, settings, key = session.console, session.settings, load_key(sign_)
    source = read_origin(settings, from_, trust, allow_unsigned=allow_unsigned)
    if only and repair:
        raise UsageError("--only and --repair exclude each other", remedy="leave one of them out")
    mode: Mode = "only" if only else "repair" if repair else "keep"
    request = graft_plan.GraftRequest(
        cards=(*(gpu or ()), *(compute_capability or ())),
        wheel=read_wheel_option(str(wheel)) if wheel else None,
        mode=mode,
        exact=exact,
    )
    planned = graft_plan.plan_graft(load_table(), settings, request)
    grafted = obtain_graft(planned, order(settings, console, out, source, key, dry_run=dry_run))
    if grafted is None:
        return
    if dry_run:
        print_plan(Plan(steps=()), console)
        return
    folder, facts = project.shorten(grafted.folder), grafted.record.facts
    flags, host = " ".join(planned.lock.versions.flags()), inspection.describe_host(facts["inspection"])
    console.result(
        {
            "wheel": str(grafted.wheel),
            "digest": grafted.record.digest,
            "folder": str(grafted.folder),
            "plan": planned.digest,
            "reused": grafted.reused,
            "bytes": facts["inspection"]["bytes"],
            "seconds": facts["seconds"],
            "graft": facts["graft"],
            "run": flags,
        },
        f"{folder}/{grafted.wheel.name}\n{grafted.record.digest}\n{_describe_left(facts['graft'])}\n"
        f"check it:    toolkit verify {folder}\n"
        f"install it:  toolkit install --wheel {folder}{f'   # {host}' if host else ''}\n"
        f"use it here: toolkit up digits --wheel {folder} {flags}",
    )


def _describe_left(graft: Mapping[str, Any]) -> str:
    """Return in words what the record of a graft names as left to the driver's compiler, or to no machine code."""
    left = Counter[str]()
    for item in graft["libraries"]:
        left.update(item["left"])
    return "".join(f"left:      {count} {reason}\n" for reason, count in sorted(left.items()))
