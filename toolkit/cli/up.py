"""``toolkit up``: the whole chain, from the wheel to a trained network."""

from typing import TYPE_CHECKING, Annotated

import typer

from toolkit.cli import options
from toolkit.cli.session import Session, command

if TYPE_CHECKING:
    from toolkit.wheel.preparation import Wish


@command("tensorflow", "cuda", "cudnn", "engine", "base_image", "ca_bundle")
def up(
    session: Session,
    context: typer.Context,
    dataset: options.Dataset = "digits",
    wheel: options.Wheel = None,
    from_source: Annotated[
        bool, typer.Option("--from-source", help="Build the wheel, if it is not built yet.")
    ] = False,
    compute_capability: options.Capabilities = None,
    source: options.Source = "",
    bazel: options.Bazel = "",
    jobs: options.Jobs = 0,
    gpu: options.Gpu = None,
    dry_run: options.DryRun = False,
) -> None:
    """Run the whole chain: wheel, image or environment, smoke checks, training, report.

    Options that are not listed here go to the training job: see `python -m train --help`.
    """
    from time import monotonic

    from toolkit import chain, training
    from toolkit.errors import UsageError
    from toolkit.smoke import launch

    start = monotonic()
    console, settings = session.console, session.settings
    arguments = [dataset, *context.args]
    config = training.read_arguments(arguments, settings)
    if from_source and wheel:
        raise UsageError("--from-source and --wheel exclude each other", remedy="leave one of them out")
    if from_source:
        from toolkit.wheel.plan import Means
        from toolkit.wheel.preparation import Wish

        means = Means(jobs=jobs, ca_bundle=settings.ca_bundle)
        wish = Wish(capabilities=compute_capability or (), source=source, bazel=bazel, means=means)
        session, wheel = _make_wheel(session, wish, dry_run=dry_run)
        settings = session.settings
        if wheel is None:
            return
    elif compute_capability or source or bazel or jobs:
        raise UsageError(
            "--compute-capability, --source, --bazel and --jobs are for a wheel that is built",
            remedy="add --from-source",
        )
    workplace = chain.choose_workplace(settings, wheel, console, dry_run=dry_run)
    runner = workplace.engine
    use_gpu = workplace.decide_gpu(gpu)
    expected = launch.Expectation(
        version=settings.tensorflow, cuda=settings.cuda, cudnn=settings.cudnn, device="gpu" if use_gpu else "auto"
    )
    if dry_run:
        planned = runner.plan(workplace.recipe)
        steps = [launch.plan(expected), training.plan(arguments, config, parent={}, gpu=use_gpu)]
        options.print_commands(
            console, [*planned.commands, *(argv for job in steps for argv in runner.commands(planned.reference, job))]
        )
        return
    environment = chain.prepare(workplace, console)
    report = chain.prove(runner, environment, expected, console)
    report.require_pass()
    result = training.run(runner, environment, arguments, config, gpu=use_gpu, quiet=console.verbosity < 0)
    seconds = monotonic() - start
    value = {
        "settings": settings.describe(),
        "engine": {"name": runner.name, "why": workplace.why},
        "environment": {
            "kind": environment.kind,
            "reference": environment.reference,
            "digest": environment.digest,
            "reused": environment.reused,
        },
        "smoke": report.to_json(),
        "run": result,
        "seconds": round(seconds, 3),
    }
    console.result(value, f"{training.describe(config, result)}\nwhole chain: {seconds:.0f} s")


def _make_wheel(session: Session, wish: "Wish", *, dry_run: bool) -> tuple[Session, str | None]:
    """The wheel's folder, and the settings of the set that it is for; no folder where a dry run finds none.

    What else a build can be told, `toolkit build-wheel` is told: its wheel is found here.
    """
    from dataclasses import replace

    from toolkit.wheel import making

    console, settings = session.console, session.settings
    prepared, found = making.prepare(settings, wish, console, dry_run=dry_run)
    asked = prepared.spec
    chosen = replace(session, settings=replace(settings, cuda=asked.cuda, cudnn=asked.cudnn))
    if dry_run and found is None:
        console.say("what follows depends on the wheel: ask again when it is built")
        options.print_commands(console, [prepared.plan.command(making.DIST / prepared.plan.name)])
        return chosen, None
    built = found if found and dry_run else making.make(prepared, found, settings, console)
    return chosen, str(built.folder)
