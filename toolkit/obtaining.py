"""Obtains the wheel of a plan: the finished one of this machine, else that of a registry, else a new one."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolkit.console import Console
from toolkit.settings import Settings
from toolkit.signing import Policy
from toolkit.steps import Task, run
from toolkit.wheel import wheel_folder
from toolkit.wheel.build_plan import BuildPlan
from toolkit.wheel.wheel_folder import FinishedWheel
from toolkit.wheel.wheel_plan import WheelPlan


@dataclass(frozen=True)
class WheelSource:
    """The registry that may have a wheel, and whose signatures are required of wheels that are not made now."""

    registry: str  # empty: no registry is asked
    policy: Policy  # empty: no signature is required
    # raises IntegrityError unless a folder is signed as the policy asks; see toolkit.pipeline.Request
    require_trusted: Callable[[Path, str], object]

    def find(self, plan: WheelPlan, dist: Path) -> FinishedWheel | None:
        """Return the finished wheel of a plan in ``dist``. Raises IntegrityError if it is not signed as required."""
        wheel = wheel_folder.find(plan, dist)
        if wheel:
            self.require_trusted(wheel.folder, "")
        return wheel


def obtain(
    plan: WheelPlan,
    source: WheelSource,
    plan_tasks: Callable[[], Sequence[Task[Any]]],
    settings: Settings,
    console: Console,
    *,
    out: Path,
    dry_run: bool,
) -> FinishedWheel | None:
    """Return the wheel of a plan, or None in a dry run if it would have to be made.

    ``plan_tasks``: returns the tasks that make the wheel, which the last one returns. It is called only if neither
    ``out`` nor the registry has the wheel. Raises IntegrityError if a wheel is there and not signed as required.
    """
    wheel = source.find(plan, out)
    if wheel:
        console.heading("wheel", f"reused {wheel.wheel.name}")
        return wheel
    if source.registry and isinstance(plan, BuildPlan):
        wheel = _pull(plan, source, settings, console, out=out, dry_run=dry_run)
    if wheel:
        return wheel
    tasks = plan_tasks()
    if not run(tasks, console, dry_run=dry_run):
        return None
    made: FinishedWheel = tasks[-1].result
    return made


def _pull(
    plan: BuildPlan, source: WheelSource, settings: Settings, console: Console, *, out: Path, dry_run: bool
) -> FinishedWheel | None:
    """Return the wheel that the registry has for a plan, if it has one. A dry run only says what would be asked."""
    from toolkit.engine import registry
    from toolkit.record import exchange

    repository = registry.parse(source.registry)
    tag = repository.tag or exchange.name_tag(plan.digest)
    if dry_run:
        console.heading("registry", f"{repository}:{tag} would be asked for first")
        return None
    wheel = exchange.pull(
        repository,
        plan,
        dist=out,
        state=Path(settings.state),
        policy=source.policy,
        find=lambda: source.find(plan, out),
        ca_bundle=settings.ca_bundle,
        console=console,
    )
    if wheel is None:
        console.heading("registry", f"{repository} has no {tag}: the wheel is built here")
    else:
        console.heading("wheel", f"{'pulled' if wheel.pulled else 'reused'} {wheel.wheel.name}")
    return wheel
