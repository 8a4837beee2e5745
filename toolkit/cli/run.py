from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from toolkit.cli.build import take_wheel
from toolkit.cli.command import (
    LIMIT,
    AllowUnsigned,
    Bazel,
    Capabilities,
    CpuTarget,
    Dataset,
    DryRun,
    From,
    Gpu,
    Jobs,
    JUnit,
    Limit,
    Origin,
    Session,
    Sign,
    Source,
    Trust,
    Wheel,
    command,
    load_key,
    read_origin,
    sign,
)

if TYPE_CHECKING:
    from toolkit.keys import Signer
    from toolkit.pipeline import Request
    from toolkit.wheel.request import WheelRequest

Image = Annotated[str | None, typer.Option(metavar="REF", help="An image; by default the one of these settings.")]
Version = Annotated[str | None, typer.Option(metavar="X.Y.Z", help="TensorFlow to find.")]
Capability = Annotated[str | None, typer.Option(metavar="X.Y", help="Compute capability to find.")]
Device = Annotated[Literal["auto", "cpu", "gpu"], typer.Option(help="gpu: a missing GPU is a failure.")]
Skip = Annotated[
    list[str] | None, typer.Option(metavar="ID", help="A check to leave out, and to report as skipped; repeatable.")
]
Card = Annotated[str, typer.Option("--gpu", metavar="NAME", help="t4, p100, v100, a100, l4, rtx4090, rtx5090 or h100.")]


@command("tensorflow", "python", "cuda", "cudnn", "engine", "archive", "base_image", "ca_bundle", remember=True)
def up(
    session: Session,
    context: typer.Context,
    dataset: Dataset = "digits",
    wheel: Wheel = None,
    from_source: Annotated[
        bool, typer.Option("--from-source", help="Build the wheel, if it is not built yet.")
    ] = False,
    card: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Take a published wheel that runs on this card, such as `RTX 5090`: as it is, or grafted for it.",
        ),
    ] = "",
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

    With --card, CUDA, cuDNN and, unless it is given, TensorFlow are chosen for the card. No card need be there.

    --from is as for build-wheel: the registry is asked first, and the wheel is built if the registry does not have it.
    With --trust, an environment, an image or a report of an earlier command is made again unless it is signed. A wheel
    or a finished run of an earlier command is refused unless it is signed (exit code 8).

    Options that are not listed here go to the training job: see `python -m train --help`.
    """
    from time import monotonic

    from toolkit import pipeline, training
    from toolkit.errors import UsageError
    from toolkit.plan import run
    from toolkit.smoke.inside.check import Ask

    start = monotonic()
    console, settings = session.console, session.settings
    arguments = [dataset, *context.args]
    config, key = training.read_arguments(arguments, settings), load_key(sign_)
    origin = read_origin(session, from_, trust, allow_unsigned=allow_unsigned, reuses=True)
    chosen = [
        name
        for name, given in (
            ("--card", card),
            ("--from", from_),
            ("--from-source", from_source and not from_),
            ("--wheel", wheel),
        )
        if given
    ]
    if len(chosen) > 1:
        raise UsageError(f"{' and '.join(chosen)} exclude each other", remedy="leave one of them out")
    request = pipeline.Request(
        settings=settings, wheel=wheel, gpu=gpu, dry_run=dry_run, require_trusted=origin.require_trusted
    )
    if card:
        fitted = _fit_card(session, request, card, origin, key)
        if fitted is None:
            return
        request, settings = fitted, fitted.settings
    elif from_source or from_:
        from toolkit.wheel.plan import BuildOptions
        from toolkit.wheel.request import WheelRequest

        options = BuildOptions(jobs=jobs, ca_bundle=settings.ca_bundle)
        wanted = WheelRequest(
            capabilities=compute_capability or (), source=source, bazel=bazel, cpu_target=cpu_target, options=options
        )
        built = _build_wheel(session, request, wanted, origin, key)
        if built is None:
            return
        request, settings = built, built.settings
    elif compute_capability or source or bazel or jobs or cpu_target != "avx":
        raise UsageError(
            "--compute-capability, --source, --bazel, --cpu-target and --jobs are for a wheel that is built",
            remedy="add --from-source or --from",
        )
    elif named := pipeline.read_wheel_option(wheel):
        origin.require_trusted(named.parent, "")
    resolved = pipeline.resolve(request, console)
    ask = Ask(
        version=settings.tensorflow,
        cuda=settings.cuda,
        cudnn=settings.cudnn,
        device="gpu" if resolved.gpu else "auto",
    )
    prepared = pipeline.environment_task(resolved, console)
    # What is signed as a result of checks must have been checked by this command, and not be an old report.
    checked = pipeline.smoke_task(resolved, prepared, ask, console, again=key is not None, required=True)
    trained = pipeline.train_task(resolved, prepared, arguments, config, console)
    if not run([prepared, checked, trained], console, dry_run=dry_run):
        return
    environment = prepared.result
    sign(session, key, (environment.folder, not environment.reused), (checked.result.place, False))
    sign(session, key, (config.run_dir, False))
    seconds = monotonic() - start
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


def _fit_card(
    session: Session, request: "Request", card: str, origin: Origin, key: "Signer | None"
) -> "Request | None":
    """Choose the published wheel's set for a card, and graft the wheel if it has no machine code for it.

    Returns None if a dry run ends here.
    """
    from toolkit.doctor import advice
    from toolkit.graft import job
    from toolkit.graft import plan as plans
    from toolkit.pipeline import DIST
    from toolkit.plan import run
    from toolkit.versions import load_table

    console, settings, table = session.console, request.settings, load_table()
    if native := advice.find_native(table, advice.find_capability(card), settings):
        console.heading("card", f"{card}: the published wheel has machine code for it")
        chosen = replace(settings, tensorflow=native.tensorflow, cuda=native.cuda, cudnn=native.cudnn)
        return replace(request, settings=chosen)
    planned = plans.resolve(table, settings, plans.GraftRequest(cards=[card]))
    found = job.find(planned, DIST)
    if found:
        origin.require_trusted(found.folder, "")
    task = job.plan_task(planned, settings, console, out=DIST)
    if request.dry_run and found is None:
        console.say("the next steps depend on the wheel: run this again when it is grafted")
        run([task], console, dry_run=True)
        return None
    if not request.dry_run:
        run([task], console)
        found = task.result
        sign(session, key, (found.folder, not found.reused))
    assert found is not None  # noqa: S101 - grafted, or found in a dry run
    spec = planned.lock.spec
    chosen = replace(settings, tensorflow=spec["tensorflow"], cuda=spec["cuda"], cudnn=spec["cudnn"])
    return replace(request, settings=chosen, wheel=str(found.folder))


def _build_wheel(
    session: Session, request: "Request", wanted: "WheelRequest", origin: Origin, key: "Signer | None"
) -> "Request | None":
    """Download, build or reuse the wheel; return the request that installs it, or None if a dry run ends here.

    A wheel that was not downloaded is signed at once. Later it would have to be verified again, which takes minutes.
    """
    from toolkit import pipeline
    from toolkit.plan import run

    console, out = session.console, pipeline.DIST
    had = take_wheel(session, wanted, origin, out=out, dry_run=request.dry_run)
    if had:
        plan, found, _ = had
    else:
        planned, task = pipeline.plan_wheel(request.settings, wanted, console, dry_run=request.dry_run)
        from toolkit.wheel import build  # after the checks, because it is slow to load

        plan, here = planned.plan, build.find(planned.plan, out)
        if here:
            origin.require_trusted(here.folder, "")
        if request.dry_run and here is None:
            console.say("the next steps depend on the wheel: run this again when it is built")
            run([task], console, dry_run=True)
            return None
        if not request.dry_run:
            run([task], console)
            here = task.result
            sign(session, key, (here.folder, not here.reused))
        assert here is not None  # noqa: S101 - built, or found in a dry run
        found = here
    spec = plan.lock.spec
    settings = replace(request.settings, cuda=spec["cuda"], cudnn=spec["cudnn"])
    return replace(request, settings=settings, wheel=str(found.folder))


@command("tensorflow", "python", "cuda", "cudnn", "engine", "archive", "base_image", "ca_bundle", remember=True)
def smoke(
    session: Session,
    image: Image = None,
    expect_version: Version = None,
    expect_capability: Capability = None,
    device: Device = "auto",
    skip: Skip = None,
    wheel: Wheel = None,
    junit: JUnit = None,
    sign_: Sign = "",
    dry_run: DryRun = False,
) -> None:
    """Check that the TensorFlow in an image is the one asked for, is complete, and computes correctly."""
    from toolkit import pipeline
    from toolkit.errors import UsageError
    from toolkit.plan import run
    from toolkit.smoke import runner
    from toolkit.smoke.inside.check import Ask

    console, settings = session.console, session.settings
    key = load_key(sign_)
    # In a named image, the version is checked only if the user named one.
    said = image is None or settings.sources["tensorflow"] != "default"
    ask = Ask(
        version=expect_version or (settings.tensorflow if said else ""),
        cuda=settings.cuda,
        cudnn=settings.cudnn,
        capability=expect_capability or "",
        device=device,
        skip=tuple(skip or ()),
    )
    if skip:
        runner.require_known(ask.skip)
    if image is not None and (wheel or settings.engine in {"apptainer", "host"}):
        raise UsageError(f"--image names what Docker has: it goes with neither --wheel nor --engine {settings.engine}")
    if image is not None and key:
        raise UsageError(
            "--sign is for a report of what the toolkit made",
            why="a report is signed together with the record of its image, and --image may name any image",
            remedy="name the versions instead of the image",
        )
    request = pipeline.Request(settings=settings, wheel=wheel, dry_run=dry_run)
    resolved = pipeline.resolve(request, console) if image is None else pipeline.resolve_image(request, image)
    prepared = pipeline.environment_task(resolved, console)
    checked = pipeline.smoke_task(resolved, prepared, ask, console, again=True)
    if not run([prepared, checked], console, dry_run=dry_run):
        return
    report = checked.result
    if junit:
        runner.write_junit(report, junit)
    sign(session, key, (prepared.result.folder, not prepared.result.reused), (report.place, True))
    console.result(report.to_json(), runner.render(report).rstrip())
    report.require_pass()


@command("tensorflow", "python", "cuda", "cudnn", "engine", "archive", "base_image", "ca_bundle", remember=True)
def train(
    session: Session,
    context: typer.Context,
    dataset: Dataset,
    wheel: Wheel = None,
    gpu: Gpu = None,
    sign_: Sign = "",
    dry_run: DryRun = False,
) -> None:
    """Train a DenseNet. Options that are not listed here go to the job itself: see `python -m train --help`."""
    from toolkit import pipeline, training
    from toolkit.plan import run

    console, settings = session.console, session.settings
    arguments = [dataset, *context.args]
    config, key = training.read_arguments(arguments, settings), load_key(sign_)
    request = pipeline.Request(settings=settings, wheel=wheel, gpu=gpu, dry_run=dry_run)
    resolved = pipeline.resolve(request, console)
    prepared = pipeline.environment_task(resolved, console)
    trained = pipeline.train_task(resolved, prepared, arguments, config, console)
    if run([prepared, trained], console, dry_run=dry_run):
        sign(session, key, (prepared.result.folder, not prepared.result.reused), (config.run_dir, False))
        console.result(trained.result, training.describe(config, trained.result))


@command("tensorflow", "python", "cuda", "cudnn", "engine", "archive", "base_image", "ca_bundle", remember=True)
def sweep(
    session: Session,
    file: Annotated[Path, typer.Argument(help="YAML with dataset, options, and a grid or a list of options.")],
    slots: Annotated[int, typer.Option(min=1, help="Members at the same time; they share out the cores.")] = 1,
    member: Annotated[
        int | None, typer.Option(min=0, metavar="I", help="Run this member alone, as one task of an array of jobs.")
    ] = None,
    summarise: Annotated[bool, typer.Option("--summarise", help="Compare what is complete, and run nothing.")] = False,
    limit: Limit = LIMIT,
    wheel: Wheel = None,
    gpu: Gpu = None,
    dry_run: DryRun = False,
) -> None:
    """Train every member of a sweep, and compare them: mean, deviation and best over seeds, and a picture.

    Members are runs as `toolkit train` makes them. The same command again goes on, and leaves complete ones alone.
    On a cluster, `toolkit launch slurm --sweep FILE` gives each member a job.
    """
    from toolkit import pipeline, training
    from toolkit import sweep as sweeps
    from toolkit.errors import UsageError
    from toolkit.plan import run
    from toolkit.processes import share_cores
    from train.compare import render

    console, settings = session.console, session.settings
    if summarise and member is not None:
        raise UsageError("--member runs one member, and --summarise runs none", remedy="leave one of them out")
    planned = sweeps.read(file, settings, limit=limit)
    options = [*(["--wheel", wheel] if wheel else []), *([] if gpu is None else ["--gpu" if gpu else "--no-gpu"])]
    if dry_run:
        sweeps.show(planned, planned.members if member is None else [planned.pick(member)], options, console)
        return
    share_cores(slots)  # refused before anything is made
    one = None if member is None else planned.pick(member)
    resolved = pipeline.resolve(pipeline.Request(settings=settings, wheel=wheel, gpu=gpu), console)
    if resolved.gpu and slots > 1:
        raise UsageError(
            f"--slots {slots} is for processors: each job takes every GPU",
            remedy="leave it out, say --no-gpu, or run an array of jobs, each with a GPU of its own",
        )
    prepared = pipeline.environment_task(resolved, console)
    if one:
        trained = pipeline.train_task(resolved, prepared, one.arguments, one.config, console)
        run([prepared, trained], console)
        console.result(trained.result, training.describe(one.config, trained.result))
        return
    run([prepared], console)
    variables = sweeps.pass_on(settings, resolved.engine.name)
    codes = {} if summarise else sweeps.run(planned, options, variables, slots, console)
    if planned.find_results():
        value = sweeps.summarize(planned, codes, resolved.engine, prepared.result)
        console.result(value, f"{render(value['points'])}\n{planned.folder / sweeps.PICTURE}")
    elif console.json:
        console.result({"sweep": str(planned.folder), "members": sweeps.describe_members(planned, codes)}, "")
    sweeps.require_complete(planned, codes, console)


@command("tensorflow", "engine", "ca_bundle")
def rehearse(
    session: Session,
    context: typer.Context,
    dataset: Dataset,
    gpu: Card = "t4",
    dry_run: DryRun = False,
) -> None:
    """Run a training job's first steps on an emulated GPU, and report what a real one would refuse or have to do.

    Images are random bytes of the data set's shape; `synthetic` with --shape 224x224x3 has any shape. Options that are
    not listed here go to the job, or to the rehearsal: see `python -m train.rehearsal --help`.
    """
    from toolkit import rehearsal
    from toolkit.plan import run

    console = session.console
    run(
        rehearsal.plan_tasks([dataset, *context.args, "--gpu", gpu], session.settings, console),
        console,
        dry_run=dry_run,
    )
