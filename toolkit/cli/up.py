"""``toolkit up``: the whole chain, from the wheel to a trained network."""

from typing import Annotated

import typer

from toolkit.cli import options
from toolkit.cli.guard import guarded

Dataset = Annotated[str, typer.Argument(help="digits, cifar10, cifar100, svhn or fashion_mnist.")]


@guarded
def up(
    context: typer.Context,
    dataset: Dataset = "digits",
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
    """Run the whole chain: wheel, image or environment, smoke checks, training, report.

    Options that are not listed here go to the training job: see `python -m train --help`.
    """
    from time import monotonic

    from toolkit import chain, training
    from toolkit.smoke import launch

    start = monotonic()
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
    runner = workplace.engine
    use_gpu = workplace.decide_gpu(gpu)
    expected = launch.Expectation(
        version=settings.tensorflow, cuda=settings.cuda, cudnn=settings.cudnn, device="gpu" if use_gpu else "auto"
    )
    if dry_run:
        planned = runner.plan(workplace.recipe)
        jobs = [launch.plan(expected), training.plan(arguments, config, parent={}, gpu=use_gpu)]
        options.print_commands(console, [*planned.commands, *(runner.command(planned.reference, job) for job in jobs)])
        return
    environment = chain.prepare(workplace, console)
    report = chain.prove(runner, environment, expected, console)
    report.require_pass()
    result = training.run(runner, environment, arguments, config, gpu=use_gpu)
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
