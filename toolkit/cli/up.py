"""``toolkit up``: the whole chain, from the wheel to a trained network."""

import typer

from toolkit.cli import options
from toolkit.cli.session import Session, command


@command("tensorflow", "cuda", "cudnn", "engine", "base_image", "ca_bundle")
def up(
    session: Session,
    context: typer.Context,
    dataset: options.Dataset = "digits",
    wheel: options.Wheel = None,
    gpu: options.Gpu = None,
    dry_run: options.DryRun = False,
) -> None:
    """Run the whole chain: wheel, image or environment, smoke checks, training, report.

    Options that are not listed here go to the training job: see `python -m train --help`.
    """
    from time import monotonic

    from toolkit import chain, training
    from toolkit.smoke import launch

    start = monotonic()
    console, settings = session.console, session.settings
    arguments = [dataset, *context.args]
    config = training.read_arguments(arguments, settings)
    workplace = chain.choose_workplace(settings, wheel, console, dry_run=dry_run)
    runner = workplace.engine
    use_gpu = workplace.decide_gpu(gpu)
    expected = launch.Expectation(
        version=settings.tensorflow, cuda=settings.cuda, cudnn=settings.cudnn, device="gpu" if use_gpu else "auto"
    )
    if dry_run:
        planned = runner.plan(workplace.recipe)
        jobs = [launch.plan(expected), training.plan(arguments, config, parent={}, gpu=use_gpu)]
        options.print_commands(
            console, [*planned.commands, *(argv for job in jobs for argv in runner.commands(planned.reference, job))]
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
