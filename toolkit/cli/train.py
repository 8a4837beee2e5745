"""``toolkit train``: the training job, in the image or on the host."""

import typer

from toolkit.cli import options
from toolkit.cli.session import Session, command


@command("tensorflow", "cuda", "cudnn", "engine", "base_image", "ca_bundle")
def train(
    session: Session,
    context: typer.Context,
    dataset: options.Dataset,
    wheel: options.Wheel = None,
    gpu: options.Gpu = None,
    dry_run: options.DryRun = False,
) -> None:
    """Train a DenseNet. Options that are not listed here go to the job itself: see `python -m train --help`."""
    from toolkit import chain, training

    console, settings = session.console, session.settings
    arguments = [dataset, *context.args]
    config = training.read_arguments(arguments, settings)
    workplace = chain.choose_workplace(settings, wheel, console, dry_run=dry_run)
    use_gpu = workplace.decide_gpu(gpu)
    if dry_run:
        planned = workplace.engine.plan(workplace.recipe)
        job = training.plan(arguments, config, parent={}, gpu=use_gpu)
        options.print_commands(console, [*planned.commands, *workplace.engine.commands(planned.reference, job)])
        return
    environment = chain.prepare(workplace, console)
    result = training.run(workplace.engine, environment, arguments, config, gpu=use_gpu, quiet=console.verbosity < 0)
    console.result(result, training.describe(config, result))
