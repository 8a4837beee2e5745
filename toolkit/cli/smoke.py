"""``toolkit smoke``: the checks inside an image, or inside the host's environment."""

from typing import Annotated, Literal

import typer

from toolkit.cli import options
from toolkit.cli.session import Session, command

Image = Annotated[str | None, typer.Option(metavar="REF", help="An image; by default the one of these settings.")]
Version = Annotated[str | None, typer.Option(metavar="X.Y.Z", help="TensorFlow to find.")]
Capability = Annotated[str | None, typer.Option(metavar="X.Y", help="Compute capability to find.")]
Device = Annotated[Literal["auto", "cpu", "gpu"], typer.Option(help="gpu: a missing GPU is a failure.")]
Skip = Annotated[
    list[str] | None, typer.Option(metavar="ID", help="A check to leave out, and to report as skipped; repeatable.")
]


@command("tensorflow", "cuda", "cudnn", "engine", "base_image", "ca_bundle")
def smoke(
    session: Session,
    image: Image = None,
    expect_version: Version = None,
    expect_capability: Capability = None,
    device: Device = "auto",
    skip: Skip = None,
    wheel: options.Wheel = None,
    junit: options.JUnit = None,
    dry_run: options.DryRun = False,
) -> None:
    """Prove that the TensorFlow in an image is the one asked for, whole, and computes right."""
    from toolkit import chain
    from toolkit.engine.choice import adopt
    from toolkit.errors import UsageError
    from toolkit.smoke import launch
    from toolkit.smoke.report import render, write_junit

    console, settings = session.console, session.settings
    # Of an image that somebody names, only what was said is expected; of ours, what the settings say it holds.
    said = image is None or settings.sources["tensorflow"] != "default"
    expected = launch.Expectation(
        version=expect_version or (settings.tensorflow if said else ""),
        cuda=settings.cuda,
        cudnn=settings.cudnn,
        capability=expect_capability or "",
        device=device,
        skip=tuple(skip or ()),
    )
    if skip:
        launch.require_known(expected.skip)
    if image is not None and (wheel or settings.engine == "host"):
        raise UsageError("--image names what is checked: it goes with neither --wheel nor --engine host")
    if image is not None:
        runner, environment = adopt(settings, image)
        reference, commands = image, []
    else:
        workplace = chain.choose_workplace(settings, wheel, console, dry_run=dry_run)
        runner = workplace.engine
        planned = runner.plan(workplace.recipe)
        reference, commands = planned.reference, list(planned.commands)
    if dry_run:
        commands += [tuple(argv) for argv in runner.commands(reference, launch.plan(expected))]
        options.print_commands(console, commands)
        return
    if image is None:
        environment = chain.prepare(workplace, console)
    report = chain.prove(runner, environment, expected, console, again=True)
    if junit:
        write_junit(report, junit)
    console.result(report.to_json(), render(report).rstrip())
    report.require_pass()
