"""Obtains the wheel of a plan: finds it, else pulls it, else has it made and checked; and then signs it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolkit.base.console import Console
from toolkit.base.signing import Policy
from toolkit.base.steps import Task, run
from toolkit.versions.settings import Settings
from toolkit.wheel import wheel_folder
from toolkit.wheel.wheel_folder import FinishedWheel
from toolkit.wheel.wheel_plan import WheelPlan

if TYPE_CHECKING:
    from toolkit.base.keys import Signer


@dataclass(frozen=True)
class WheelSource:
    """The registry that may have a wheel, and the policy that a wheel must meet if this command does not make it."""

    registry: str = ""  # empty: no registry is asked
    policy: Policy = field(default_factory=Policy)  # empty: no signature is required
    # raises IntegrityError unless a folder is signed as the policy asks; see toolkit.jobs.choice.Manner
    require_trusted: Callable[[Path, str], object] = wheel_folder.require_own

    def find(self, plan: WheelPlan, dist: Path) -> FinishedWheel | None:
        """Return the finished wheel of a plan in ``dist``.

        Raises IntegrityError if it is neither signed as required nor has this user's seal.
        """
        wheel = wheel_folder.find(plan, dist)
        if wheel:  # it was found, not named
            self.require_trusted(wheel.folder, "")
        return wheel


@dataclass(frozen=True, kw_only=True)
class Order:
    """Where a wheel comes from and goes to, and who signs it."""

    settings: Settings
    console: Console
    out: Path  # folder of finished wheels
    source: WheelSource
    key: "Signer | None"  # None: it is not signed
    dry_run: bool


def obtain(plan: WheelPlan, make: Callable[[], Sequence[Task[Any]]], order: Order) -> FinishedWheel | None:
    """Return the wheel of a plan. A dry run prints how it would be made, and returns None if it is not there.

    ``make``: returns the tasks of which the last one makes the wheel. What came from a registry, or was there for one,
    is not signed. A new wheel is signed at once: later it would have to be verified again, which takes minutes.

    Raises IntegrityError if the wheel exists and is not signed as required, and what the tasks raise.
    """
    source, console = order.source, order.console
    wheel = source.find(plan, order.out)
    if wheel:
        console.heading("wheel", f"reused {wheel.wheel.name}")
    elif source.registry:
        wheel = _pull(plan, order)
    if wheel is None:
        tasks = make()
        if not run(tasks, console, dry_run=order.dry_run):
            return None
        wheel = tasks[-1].result
    if order.key and not order.dry_run and not (source.registry and wheel.reused):
        _sign(wheel, order.key, order)
    return wheel


def _pull(plan: WheelPlan, order: Order) -> FinishedWheel | None:
    """Return the wheel that the registry has for a plan, or None. A dry run only says which registry would be asked."""
    from toolkit.engine import registry
    from toolkit.records import transfer

    console, settings, source = order.console, order.settings, order.source
    repository = registry.parse(source.registry)
    tag = transfer.name_tag(plan.digest)
    if order.dry_run:
        console.heading("registry", f"{repository}:{tag} would be asked for first")
        return None
    wheel = transfer.pull(
        repository,
        plan,
        dist=order.out,
        state=Path(settings.state),
        policy=source.policy,
        find=lambda: source.find(plan, order.out),
        ca_bundle=settings.ca_bundle,
        console=console,
    )
    if wheel is None:
        console.heading("registry", f"{repository} has no {tag}: the wheel is made here")
    else:
        console.heading("wheel", f"{'pulled' if wheel.pulled else 'reused'} {wheel.wheel.name}")
    return wheel


def _sign(wheel: FinishedWheel, key: "Signer", order: Order) -> None:
    from toolkit import records
    from toolkit.records import attestation

    artifact = records.find(str(wheel.folder), Path(order.settings.state))
    order.console.heading("sign", attestation.sign(artifact, key, fresh=not wheel.reused))
