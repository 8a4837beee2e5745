"""``toolkit build-image``: the runtime and train images."""

from typing import Annotated, Literal

import typer

from toolkit.cli import options
from toolkit.cli.guard import guarded


@guarded
def build_image(
    wheel: options.Wheel = None,
    tensorflow: options.Tensorflow = None,
    cuda: options.Cuda = None,
    cudnn: options.Cudnn = None,
    target: Annotated[Literal["runtime", "train"], typer.Option(help="Stage of docker/Dockerfile.")] = "train",
    tag: Annotated[str, typer.Option(metavar="NAME", help="Name of the image; by default one made of its plan.")] = "",
    base_image: options.BaseImage = None,
    ca_bundle: options.CaBundle = None,
    dry_run: options.DryRun = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
) -> None:
    """Build an image that holds TensorFlow, by wheel or from the published set, and the training job."""
    from toolkit import chain, manifest

    console = options.open_console(json=json, quiet=quiet, verbose=verbose)
    settings = options.resolve_settings(
        console,
        tensorflow=tensorflow,
        cuda=cuda,
        cudnn=cudnn,
        base_image=base_image,
        ca_bundle=ca_bundle,
        engine="docker",
    )
    workplace = chain.choose_workplace(settings, wheel, console, target=target, tag=tag)
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
