"""Reads where the wheel of a command comes from, and obtains it: one that is built, or a graft."""

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolkit.base.console import Console
from toolkit.base.errors import UsageError
from toolkit.versions.settings import Settings
from toolkit.wheel.build_options import BuildOptions

if TYPE_CHECKING:
    from toolkit.base.keys import Signer
    from toolkit.base.steps import Task
    from toolkit.graft.graft_plan import GraftPlan
    from toolkit.records.obtaining import Order, WheelSource
    from toolkit.wheel.build_plan import PlannedWheel
    from toolkit.wheel.wheel_folder import FinishedWheel


def read_origin(
    settings: Settings, registry: str, trust: Sequence[Path] | None, *, allow_unsigned: bool, reuses: bool = False
) -> "WheelSource":
    """Return what --from, --trust and --allow-unsigned ask for. Raises UsageError if they do not go together.

    ``reuses``: whether --trust is for what the command reuses too, and may stand alone.
    """
    if not registry and (allow_unsigned or (trust and not reuses)):
        raise UsageError("--trust and --allow-unsigned are for --from", remedy="leave them out, or name a registry")
    if registry and bool(trust) == allow_unsigned:
        raise UsageError(
            "--from needs --trust or --allow-unsigned, and not both",
            why="whoever can write to the registry could otherwise choose the wheel",
            remedy="--trust KEY.pub, or a policy of who may sign what",
        )
    from toolkit.records.obtaining import WheelSource

    if not trust:
        return WheelSource(registry)
    from toolkit import records
    from toolkit.records import verification

    policy = records.read_policy(trust)
    state = Path(settings.state)
    return WheelSource(registry, policy, functools.partial(verification.require_trusted, state=state, policy=policy))


def order(
    settings: Settings,
    console: Console,
    out: Path,
    source: "WheelSource | None" = None,
    key: "Signer | None" = None,
    *,
    dry_run: bool,
) -> "Order":
    """Return how this command obtains a wheel. Without a ``source``, no registry is asked."""
    from toolkit.records.obtaining import Order, WheelSource

    source = source or WheelSource()
    return Order(settings=settings, console=console, out=out, source=source, key=key, dry_run=dry_run)


def plan_wheel(settings: Settings, console: Console, options: BuildOptions) -> "PlannedWheel":
    """Plan the wheel of a command. Raises what :func:`toolkit.wheel.build_plan.plan_wheel` raises."""
    from toolkit.versions.lock import FILE
    from toolkit.versions.table import load_table
    from toolkit.wheel import build_plan

    advisories = load_table().list_advisories(settings.tensorflow)
    console.add({"advisories": [advisory.id for advisory in advisories]})
    return build_plan.plan_wheel(settings, options, lock_file=Path(FILE))


def obtain_wheel(planned: "PlannedWheel", order: "Order") -> "FinishedWheel | None":
    """Reuse, download or build a wheel. Returns None in a dry run if it would have to be built."""
    from toolkit.records import obtaining

    def make() -> "list[Task[Any]]":
        from toolkit.wheel import build  # slow to load, and a finished wheel does not need it

        return build.plan_tasks(planned, order.settings, order.console, out=order.out, dry_run=order.dry_run)

    return obtaining.obtain(planned.plan, make, order)


def obtain_graft(planned: "GraftPlan", order: "Order") -> "FinishedWheel | None":
    """Reuse or make a grafted wheel. Returns None in a dry run if it would have to be made."""
    from toolkit.graft import job
    from toolkit.records import obtaining

    order.console.heading("plan", planned.summarize())
    return obtaining.obtain(
        planned, lambda: [job.plan_task(planned, order.settings, order.console, out=order.out)], order
    )
