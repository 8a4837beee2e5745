from collections.abc import Mapping, Sequence
from dataclasses import replace
from time import monotonic
from typing import TYPE_CHECKING, Annotated

import typer

from toolkit.cli.build import obtain_wheel
from toolkit.cli.command import (
    AllowUnsigned,
    Bazel,
    Capabilities,
    CpuTarget,
    Dataset,
    DryRun,
    From,
    Gpu,
    Jobs,
    Session,
    Sign,
    Source,
    Trust,
    Wheel,
    WheelSource,
    command,
    load_key,
    read_origin,
    sign,
    write_page,
)
from toolkit.errors import UsageError

if TYPE_CHECKING:
    from toolkit.keys import Signer
    from toolkit.pipeline import Request
    from toolkit.wheel.build_request import WheelRequest
    from train.config.configuration import TrainConfig


@command(
    "tensorflow",
    "python",
    "cuda",
    "cudnn",
    "card",
    "engine",
    "archive",
    "base_image",
    "glibc",
    "ca_bundle",
    "downloads",
    remember=True,
    long=True,
)
def up(
    session: Session,
    context: typer.Context,
    dataset: Dataset = "digits",
    wheel: Wheel = None,
    from_source: Annotated[
        bool, typer.Option("--from-source", help="Build the wheel, if it is not built yet.")
    ] = False,
    compute_capability: Capabilities = None,
    source: Source = "",
    bazel: Bazel = "",
    cpu_target: CpuTarget = "avx",
    jobs: Jobs = 0,
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

    --from is as for build-wheel: the registry is asked first, and the wheel is built if the registry does not have it.
    With --trust, an environment, an image or a report of an earlier command is made again unless it is signed. A wheel
    or a finished run of an earlier command is refused unless it is signed (exit code 8).

    Options that are not listed here go to the training job: see `python -m train --help`.
    """
    from toolkit import pipeline, training

    begun = monotonic()
    arguments = [dataset, *context.args]
    config, key = training.read_arguments(arguments, session.settings), load_key(sign_)
    origin = read_origin(session, from_, trust, allow_unsigned=allow_unsigned, reuses=True)
    card = session.settings.card if session.settings.card not in {"auto", "none"} else ""
    _require_one_way({"--card": card, "--from": from_, "--from-source": from_source and not from_, "--wheel": wheel})
    request = pipeline.Request(
        settings=session.settings, wheel=wheel, gpu=gpu, dry_run=dry_run, require_trusted=origin.require_trusted
    )
    of_a_build = compute_capability or source or bazel or jobs or cpu_target != "avx"
    found: pipeline.Request | None
    if from_source or from_:
        from toolkit.wheel.build_plan import BuildOptions
        from toolkit.wheel.build_request import WheelRequest

        options = BuildOptions(jobs=jobs, ca_bundle=session.settings.ca_bundle)
        wanted = WheelRequest(
            capabilities=compute_capability or (), source=source, bazel=bazel, cpu_target=cpu_target, options=options
        )
        found = _build_wheel(session, request, wanted, origin, key)
    elif of_a_build:
        raise UsageError(
            "--compute-capability, --source, --bazel, --cpu-target and --jobs are for a wheel that is built",
            remedy="add --from-source or --from",
        )
    elif named := pipeline.read_wheel_option(wheel):
        origin.require_trusted(named.parent, "")
        found = request
    else:
        found = _fit_cards(session, request, origin, key)
    if found:
        _train(session, found, arguments, config, key, begun=begun)
    else:
        session.console.say("the next steps depend on the wheel: run this again when it is there")


def _require_one_way(given: Mapping[str, object]) -> None:
    """Raise a UsageError if the wheel is to come from two places."""
    chosen = [name for name, value in given.items() if value]
    if len(chosen) > 1:
        raise UsageError(f"{' and '.join(chosen)} exclude each other", remedy="leave one of them out")


def _train(
    session: Session,
    request: "Request",
    arguments: Sequence[str],
    config: "TrainConfig",
    key: "Signer | None",
    *,
    begun: float,
) -> None:
    """Make the environment of a wheel, check it, train in it, and report what each step gave."""
    from toolkit import pipeline, training
    from toolkit.smoke.checks.check import Expectation
    from toolkit.steps import run
    from toolkit.versions import load_table
    from toolkit.versions.rules import warn_of_advisories

    console, settings = session.console, request.settings
    resolved = pipeline.resolve(request, console)
    console.add({"advisories": [item.id for item in load_table().list_advisories(settings.tensorflow)]})
    if warning := warn_of_advisories(load_table(), settings.tensorflow):
        console.say(f"  {warning}")
    device = "gpu" if resolved.gpu else "auto"
    expectation = Expectation(version=settings.tensorflow, cuda=settings.cuda, cudnn=settings.cudnn, device=device)
    prepared = pipeline.environment_task(resolved, console)
    # What is signed as a result of checks must have been checked by this command, and not be an old report.
    checked = pipeline.smoke_task(resolved, prepared, expectation, console, force=key is not None, required=True)
    trained = pipeline.train_task(resolved, prepared, arguments, config, console)
    if not run([prepared, checked, trained], console, dry_run=request.dry_run):
        return
    environment = prepared.result
    sign(session, key, (environment.folder, not environment.reused), (checked.result.path, False))
    sign(session, key, (config.run_dir, False))
    write_page(session, config.run_dir)
    seconds = monotonic() - begun
    value = {
        "settings": settings.describe(),
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
    console.result(value, f"{training.describe(config, trained.result)}\nwhole chain: {seconds:.0f} s")


def _fit_cards(session: Session, request: "Request", origin: WheelSource, key: "Signer | None") -> "Request | None":
    """Take the set that is decided for the cards, and graft the wheel if it has no machine code for one of them.

    Returns None if a dry run ends here.
    """
    from toolkit import pipeline
    from toolkit.graft import graft_plan, job
    from toolkit.steps import run
    from toolkit.versions import load_table

    console = session.console
    decision = pipeline.decide_set(request, console)
    if decision is None or not (decision.uses_gpu and decision.grafted):
        return pipeline.choose_set(request, console, decision)
    chosen = pipeline.apply_decision(request, decision)
    pipeline.choose_spec(chosen.settings)  # a set that is not locked is refused before minutes of work
    planned = graft_plan.resolve(load_table(), chosen.settings, graft_plan.GraftRequest(cards=decision.grafted))
    found = job.find(planned, pipeline.DIST)
    if found:
        origin.require_trusted(found.folder, "")
    task = job.plan_task(planned, chosen.settings, console, out=pipeline.DIST)
    if run([task], console, dry_run=request.dry_run):
        found = task.result
        sign(session, key, (found.folder, not found.reused))
    return replace(chosen, wheel=str(found.folder)) if found else None


def _build_wheel(
    session: Session, request: "Request", wanted: "WheelRequest", origin: WheelSource, key: "Signer | None"
) -> "Request | None":
    """Download, build or reuse the wheel; return the request that installs it, or None if a dry run ends here."""
    from toolkit.pipeline import DIST

    found = obtain_wheel(session, wanted, origin, key, out=DIST, dry_run=request.dry_run)
    if found is None:
        return None
    spec = found.plan.lock.spec
    settings = replace(request.settings, cuda=spec["cuda"], cudnn=spec["cudnn"])
    return replace(request, settings=settings, wheel=str(found.built.folder))
