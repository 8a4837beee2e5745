"""``toolkit smoke``: the checks inside an image, or inside the host's environment."""

from typing import Annotated, Literal

import typer

from toolkit.cli import options
from toolkit.cli.guard import guarded


@guarded
def smoke(
    image: Annotated[str | None, typer.Option(metavar="REF", help="An image; by default the one of these settings.")] = None,
    wheel: options.Wheel = None,
    tensorflow: options.Tensorflow = None,
    cuda: options.Cuda = None,
    cudnn: options.Cudnn = None,
    expect_version: Annotated[str | None, typer.Option(metavar="X.Y.Z", help="TensorFlow to find.")] = None,
    expect_capability: Annotated[str | None, typer.Option(metavar="X.Y", help="Compute capability to find.")] = None,
    device: Annotated[Literal["auto", "cpu", "gpu"], typer.Option(help="gpu: a missing GPU is a failure.")] = "auto",
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
    from toolkit import recipes
    from toolkit.engine.choice import adopt, choose
    from toolkit.smoke import launch

    console = options.open_console(json=json, quiet=quiet, verbose=verbose)
    settings = options.resolve_settings(
        console,
        tensorflow=tensorflow,
        cuda=cuda,
        cudnn=cudnn,
        engine="docker" if image else engine,
        base_image=base_image,
        ca_bundle=ca_bundle,
    )
    if image:
        chosen, environment = adopt(settings, image)
        expected = launch.Expectation(version=expect_version, capability=expect_capability, device=device)
        reference = image
    else:
        recipe = recipes.choose(settings, wheel)
        choice = choose(settings)
        chosen = choice.engine
        console.heading("engine", f"{chosen.name}: {choice.why}")
        expected = launch.Expectation(
            version=expect_version or recipe.tensorflow,
            capability=expect_capability,
            device=device,
            cuda=recipe.cuda,
            cudnn=recipe.cudnn,
        )
