"""From what was asked to a wheel in its folder, with all that a person should know said on the way."""

from pathlib import Path
from typing import TYPE_CHECKING

from toolkit import lock
from toolkit.console import Console
from toolkit.settings import Settings
from toolkit.wheel import events, preparation
from toolkit.wheel.preparation import Prepared, Wish

if TYPE_CHECKING:
    from toolkit.wheel.build import Built

DIST = Path("dist")
"""Where finished wheels are, unless somebody says otherwise."""


def prepare(
    settings: Settings, wish: Wish, console: Console, *, out: Path = DIST, dry_run: bool = False
) -> "tuple[Prepared, Built | None]":
    """Plan a wheel and look whether it is there. Raises as :func:`toolkit.wheel.preparation.prepare`."""
    # Before the rest is loaded: a refusal shall not wait for the engine's SDK.
    prepared = preparation.prepare(settings, wish, lock_file=Path(lock.FILE), dry_run=dry_run)
    from toolkit.doctor import building
    from toolkit.wheel import build

    plan = prepared.plan
    found = build.find(plan, out)
    if found is None or dry_run:
        # An up-to-date wheel has been warned about when it was built.
        for line in (*prepared.spec.warnings, *lock.describe_floating(plan.floating)):
            console.say(f"  {line}")
        answered = prepared.spec.answered
        console.say(f"  {len(answered)} known failures that every set meets are answered; --verbose lists them")
        for line in answered:
            console.detail(f"  {line}")
        machine = building.check_machine()
        console.heading("machine", "; ".join(filter(None, (machine.evidence, machine.remedy))))
    console.heading("plan", f"{plan.name}: inputs {plan.rung}")
    return prepared, found


def make(
    prepared: Prepared, found: "Built | None", settings: Settings, console: Console, *, out: Path = DIST
) -> "Built":
    """The wheel that was found, or one that is built now. Raises as :func:`toolkit.wheel.build.build`."""
    from toolkit.wheel import build

    plan = prepared.plan
    logs = Path(settings.state) / f"wheel-{plan.name}"
    built = found or build.build(plan, prepared.matrix, dist=out, logs=logs, engine=prepared.engine, console=console)
    ran = built.record.facts["bazel"]
    # A cache that does not answer is no error to Bazel: these numbers are how one notices.
    console.heading("bazel", events.describe(ran))
    console.heading("wheel", f"{'reused' if built.reused else 'built'} {built.wheel.name}")
    return built
