"""Looks for a finished wheel of a plan: first on this machine, then in a registry."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from toolkit.base.console import Console
from toolkit.base.signing import Policy
from toolkit.versions.settings import Settings
from toolkit.wheel import wheel_folder
from toolkit.wheel.build_plan import BuildPlan
from toolkit.wheel.wheel_folder import FinishedWheel
from toolkit.wheel.wheel_plan import WheelPlan


@dataclass(frozen=True)
class WheelSource:
    """The registry that may have a wheel, and the policy that a wheel must meet if this command does not make it."""

    registry: str  # empty: no registry is asked
    policy: Policy  # empty: no signature is required
    # raises IntegrityError unless a folder is signed as the policy asks; see toolkit.jobs.choice.Runner
    require_trusted: Callable[[Path, str], object]

    def find(self, plan: WheelPlan, dist: Path) -> FinishedWheel | None:
        """Return the finished wheel of a plan in ``dist``.

        Raises IntegrityError if it is neither signed as required nor has this user's seal.
        """
        wheel = wheel_folder.find(plan, dist)
        if wheel:  # it was found, not named
            self.require_trusted(wheel.folder, "")
        return wheel


def obtain_existing(
    plan: WheelPlan,
    source: WheelSource,
    settings: Settings,
    console: Console,
    *,
    out: Path,
    dry_run: bool,
) -> FinishedWheel | None:
    """Return the wheel of a plan if it is in ``out`` or the registry has it, else None.

    A dry run does not ask the registry. Raises IntegrityError if the wheel exists and is not signed as required.
    """
    wheel = source.find(plan, out)
    if wheel:
        console.heading("wheel", f"reused {wheel.wheel.name}")
        return wheel
    if source.registry and isinstance(plan, BuildPlan):
        return _pull(plan, source, settings, console, out=out, dry_run=dry_run)
    return None


def _pull(
    plan: BuildPlan, source: WheelSource, settings: Settings, console: Console, *, out: Path, dry_run: bool
) -> FinishedWheel | None:
    """Return the wheel that the registry has for a plan, or None. A dry run only says which registry would be asked."""
    from toolkit.engine import registry
    from toolkit.records import transfer

    repository = registry.parse(source.registry)
    tag = repository.tag or transfer.name_tag(plan.digest)
    if dry_run:
        console.heading("registry", f"{repository}:{tag} would be asked for first")
        return None
    wheel = transfer.pull(
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
