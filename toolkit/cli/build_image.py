"""``toolkit build-image``: the runtime and train images."""

from typing import Annotated, Literal

import typer

from toolkit.cli import options
from toolkit.cli.session import Session, command


@command("tensorflow", "cuda", "cudnn", "base_image", "ca_bundle", engine="docker")
def build_image(
    session: Session,
    wheel: options.Wheel = None,
    target: Annotated[Literal["runtime", "train"], typer.Option(help="Stage of docker/Dockerfile.")] = "train",
    tag: Annotated[str, typer.Option(metavar="NAME", help="Name of the image; by default one made of its plan.")] = "",
    dry_run: options.DryRun = False,
) -> None:
    """Build an image that holds TensorFlow, by wheel or from the published set, and the training job."""
    from toolkit import chain, manifest

    console, settings = session.console, session.settings
    workplace = chain.choose_workplace(settings, wheel, console, target=target, tag=tag, dry_run=dry_run)
    if dry_run:
        options.print_commands(console, workplace.engine.plan(workplace.recipe).commands)
        return
    environment = chain.prepare(workplace, console)
    record = manifest.read(environment.folder)
    size = record.facts["bytes"] if record else 0
    console.result(
        {
            "image": environment.reference,
            "digest": environment.digest,
            "bytes": size,
            "reused": environment.reused,
            "manifest": str(environment.folder / manifest.FILE),
        },
        f"{environment.reference}  {environment.digest}  {size / 1e9:.2f} GB",
    )
