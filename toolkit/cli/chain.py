from collections.abc import Mapping, Sequence
from dataclasses import replace
from time import monotonic
from typing import TYPE_CHECKING, Annotated

import typer

from toolkit.base.errors import UsageError
from toolkit.base.project import DIST
from toolkit.cli.command import (
    ENVIRONMENT,
    AllowUnsigned,
    Dataset,
    DryRun,
    From,
    Gpu,
    Session,
    Sign,
    Trust,
    Wheel,
    command,
)
from toolkit.cli.results import load_key, sign, write_page
from toolkit.jobs.wheels import obtain_graft, obtain_wheel, order, plan_wheel, read_origin
from toolkit.wheel.build_options import BuildOptions

if TYPE_CHECKING:
    from toolkit.base.keys import Signer
    from toolkit.jobs.choice import Chosen, Manner, Wishes
    from toolkit.records.obtaining import WheelSource
    from train.config.configuration import TrainConfig

BUILD = ("compute_capability", "source", "bazel", "cpu_target", "jobs")
"""Options of a build that the whole chain has too."""


@command(
    *ENVIRONMENT,
    "glibc",
    "downloads",
    build=BUILD,
    remember=True,
    long=True,
)
def up(
    session: Session,
    *,
    context: typer.Context,
    dataset: Dataset = "digits",
    wheel: Wheel = None,
    from_source: Annotated[
        bool, typer.Option("--from-source", help="Build the wheel, if it is not built yet.")
    ] = False,
    options: BuildOptions,
    from_: From = "",
    trust: Trust = None,
    allow_unsigned: AllowUnsigned = False,
    gpu: Gpu = None,
    sign_: Sign = "",
    dry_run: DryRun = False,
) -> None:
    """Run the whole chain: wheel, image or environment, smoke checks, training, report.

    CUDA, cuDNN and TensorFlow are chosen for the GPU of this machine, or for the card of --card, which need not be
    there. A published wheel without machine code for it is grafted first. --card none takes the CPU set.

    With --from, a registry is asked first for the graft that the card needs. If it needs none and --card does not name
    it, --from is as for build-wheel: the wheel is built if the registry does not have it.
    With --trust, an environment, an image or a report of an earlier command is made again unless it is signed. A wheel
    or a finished run of an earlier command is refused unless it is signed (exit code 8).

    Options that are not listed here go to the training job: see `python -m train --help`.
    """
    from toolkit.jobs import choice, training_job

    begun = monotonic()
    arguments = [dataset, *context.args]
    config, key = training_job.read_arguments(arguments, session.settings), load_key(sign_)
    origin = read_origin(session.settings, from_, trust, allow_unsigned=allow_unsigned, reuses=True)
    card = session.settings.card if session.settings.card not in {"auto", "none"} else ""
    build = from_source or bool(from_ and options != BuildOptions())
    builds = "--from-source" if from_source else "options of a build"
    _require_one_way({"--card": card, builds: build, "--wheel": wheel})
    _require_one_way({"--from": from_, "--wheel": wheel})
    wishes = choice.Wishes(settings=session.settings, wheel=wheel, gpu=gpu)
    how = choice.Manner(console=session.console, dry_run=dry_run, require_trusted=origin.require_trusted)
    chosen: choice.Chosen | None
    if build:
        chosen = _build_wheel(session, wishes, how, options, origin, key)
    elif options != BuildOptions():
        flags = [f"--{name.replace('_', '-')}" for name in BUILD]
        raise UsageError(
            f"{', '.join(flags[:-1])} and {flags[-1]} are for a wheel that is built",
            remedy="add --from-source or --from",
        )
    elif named := choice.read_wheel_option(wheel):
        if trust:
            origin.require_trusted(named.parent, "")
        chosen = choice.keep(wishes)
    else:
        found = choice.choose(wishes, how)
        if from_ and not card and found.missing is None:
            chosen = _build_wheel(session, wishes, how, options, origin, key)
        else:
            chosen = _fit_cards(session, found, how, origin, key)
    if chosen:
        _train(session, chosen, how, arguments, config, key, begun=begun)
    else:
        session.console.say("the next steps depend on the wheel: run this again when it is there")


def _require_one_way(given: Mapping[str, object]) -> None:
    """Raise a UsageError if the wheel is to come from two places."""
    chosen = [name for name, value in given.items() if value]
    if len(chosen) > 1:
        raise UsageError(f"{' and '.join(chosen)} exclude each other", remedy="leave one of them out")


def _train(
    session: Session,
    chosen: "Chosen",
    how: "Manner",
    arguments: Sequence[str],
    config: "TrainConfig",
    key: "Signer | None",
    *,
    begun: float,
) -> None:
    """Make the environment of a wheel, check it, train in it, and report what each step gave."""
    from toolkit.base.steps import run
    from toolkit.checks.check import Expectation
    from toolkit.jobs import pipeline, training_job
    from toolkit.versions.rules import warn_of_advisories
    from toolkit.versions.table import load_table

    console, settings = session.console, chosen.settings
    resolved = pipeline.choose_environment(chosen, how)
    console.add({"advisories": [item.id for item in load_table().list_advisories(settings.tensorflow)]})
    if warning := warn_of_advisories(load_table(), settings.tensorflow):
        console.say(f"  {warning}")
    device = "gpu" if resolved.gpu else "auto"
    expectation = Expectation(version=settings.tensorflow, cuda=settings.cuda, cudnn=settings.cudnn, device=device)
    prepared = pipeline.environment_task(resolved)
    # What is signed as a result of checks must have been checked by this command, and not be an old report.
    checked = pipeline.smoke_task(resolved, prepared, expectation, force=key is not None, required=True)
    trained = pipeline.train_task(resolved, prepared, arguments, config)
    if not run([prepared, checked, trained], console, dry_run=how.dry_run):
        return
    environment = prepared.result
    sign(session, key, (environment.folder, not environment.reused), (checked.result.path, False))
    sign(session, key, (config.run_dir, False))
    write_page(session, config.run_dir)
    seconds = monotonic() - begun
    value = {
        "settings": settings.explain(),
        "engine": {"name": resolved.engine.name, "why": resolved.why},
        "environment": {
            "kind": environment.kind,
            "reference": environment.reference,
            "digest": environment.digest,
            "reused": environment.reused,
        },
        "smoke": checked.result.to_json(),
        "run": trained.result,
        "seconds": round(seconds, 3),
    }
    console.result(value, f"{training_job.describe(config, trained.result)}\nwhole chain: {seconds:.0f} s")


def _fit_cards(
    session: Session, chosen: "Chosen", how: "Manner", origin: "WheelSource", key: "Signer | None"
) -> "Chosen | None":
    """Graft the wheel if that of the set has no machine code for one of the cards. None if a dry run ends here."""
    from toolkit.jobs import pipeline

    if chosen.missing is None:
        if chosen.wheel and not how.dry_run:  # it was found
            sign(session, key, (chosen.wheel.parent, False))
        return chosen
    pipeline.choose_spec(chosen.settings, own_wheel=True)  # a set that is not locked is refused before minutes of work
    wheel = obtain_graft(
        chosen.missing, order(session.settings, session.console, DIST, origin, key, dry_run=how.dry_run)
    )
    return chosen.take(wheel) if wheel else None


def _build_wheel(
    session: Session,
    wishes: "Wishes",
    how: "Manner",
    options: BuildOptions,
    origin: "WheelSource",
    key: "Signer | None",
) -> "Chosen | None":
    """Download, build or reuse the wheel; return the choice that has it, or None if a dry run ends here."""
    from toolkit.jobs import choice

    planned = plan_wheel(session.settings, session.console, options)
    wheel = obtain_wheel(planned, order(session.settings, session.console, DIST, origin, key, dry_run=how.dry_run))
    if wheel is None:
        return None
    built = planned.plan.lock.versions
    settings = wishes.settings.without_libraries().merge(built.libraries)
    return choice.keep(replace(wishes, settings=settings, wheel=str(wheel.folder)))
