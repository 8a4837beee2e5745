"""``toolkit train``: the training job, in the image or on the host."""

from typing import Annotated

import typer

from toolkit.cli import options
from toolkit.cli.guard import guarded

Dataset = Annotated[str, typer.Argument(help="digits, cifar10, cifar100, svhn or fashion_mnist.")]


@guarded
def train(
    context: typer.Context,
    dataset: Dataset,
    wheel: options.Wheel = None,
    tensorflow: options.Tensorflow = None,
    cuda: options.Cuda = None,
    cudnn: options.Cudnn = None,
    gpu: options.Gpu = None,
    engine: options.Engine = None,
    base_image: options.BaseImage = None,
    ca_bundle: options.CaBundle = None,
    dry_run: options.DryRun = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
) -> None:
    """Train a DenseNet. Options that are not listed here go to the job itself: see `python -m train --help`."""
    from toolkit import chain, training

    console = options.open_console(json=json, quiet=quiet, verbose=verbose)
    settings = options.resolve_settings(
        console,
        tensorflow=tensorflow,
        cuda=cuda,
        cudnn=cudnn,
        engine=engine,
        base_image=base_image,
        ca_bundle=ca_bundle,
    )
    arguments = [dataset, *context.args]
    config = training.read_arguments(arguments, settings)
    workplace = chain.choose_workplace(settings, wheel, console)
    use_gpu = workplace.decide_gpu(gpu)
    if dry_run:
        planned = workplace.engine.plan(workplace.recipe)
        job = training.plan(arguments, config, parent={}, gpu=use_gpu)
        options.print_commands(console, [*planned.commands, workplace.engine.command(planned.reference, job)])
        return
    environment = chain.prepare(workplace, console)
    result = training.run(workplace.engine, environment, arguments, config, gpu=use_gpu)
    console.result(result, training.describe(config, result))
