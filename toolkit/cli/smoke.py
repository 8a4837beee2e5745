"""``toolkit smoke``: the checks inside an image, or inside the host's environment."""

from typing import Annotated, Literal

import typer

from toolkit.cli import options
from toolkit.cli.guard import guarded

Image = Annotated[str | None, typer.Option(metavar="REF", help="An image; by default the one of these settings.")]
Version = Annotated[str | None, typer.Option(metavar="X.Y.Z", help="TensorFlow to find.")]
Capability = Annotated[str | None, typer.Option(metavar="X.Y", help="Compute capability to find.")]
Device = Annotated[Literal["auto", "cpu", "gpu"], typer.Option(help="gpu: a missing GPU is a failure.")]


@guarded
def smoke(
    image: Image = None,
    expect_version: Version = None,
    expect_capability: Capability = None,
    device: Device = "auto",
    wheel: options.Wheel = None,
    tensorflow: options.Tensorflow = None,
    cuda: options.Cuda = None,
    cudnn: options.Cudnn = None,
    engine: options.Engine = None,
    base_image: options.BaseImage = None,
    ca_bundle: options.CaBundle = None,
    junit: options.JUnit = None,
    dry_run: options.DryRun = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
) -> None:
    """Prove that the TensorFlow in an image is the one asked for, whole, and computes right."""
    from toolkit import chain
    from toolkit.engine.choice import adopt
    from toolkit.smoke import launch
    from toolkit.smoke.report import render, write_junit

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
    # Of somebody else's image only what was said is expected; of ours, what the settings say it holds.
    expected = launch.Expectation(
        version=expect_version or (tensorflow or "" if image else settings.tensorflow),
        cuda=settings.cuda,
        cudnn=settings.cudnn,
        capability=expect_capability or "",
        device=device,
    )
    if image:
        runner, environment = adopt(settings, image)
        reference, commands = image, []
    else:
        workplace = chain.choose_workplace(settings, wheel, console)
        runner = workplace.engine
        planned = runner.plan(workplace.recipe)
        reference, commands = planned.reference, list(planned.commands)
    if dry_run:
        commands.append(tuple(runner.command(reference, launch.plan(expected))))
        options.print_commands(console, commands)
        return
    if not image:
        environment = chain.prepare(workplace, console)
    report = chain.prove(runner, environment, expected, console, again=True)
    if junit:
        write_junit(report, junit)
    console.result(report.to_json(), render(report).rstrip())
    report.require_pass()
