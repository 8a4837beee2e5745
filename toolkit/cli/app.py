"""The program: its commands and nothing else."""

import typer

from toolkit import __version__
from toolkit.cli import build_image, clean, doctor, matrix, smoke, train, up

app = typer.Typer(
    name="toolkit",
    help="TensorFlow for one exact GPU stack: build it, prove it, train with it.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

# What comes after the data set belongs to the training job, options included.
PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True}

app.command("up", context_settings=PASS_ON)(up.up)
app.command("build-image")(build_image.build_image)
app.command("smoke")(smoke.smoke)
app.command("train", context_settings=PASS_ON)(train.train)
app.command("doctor")(doctor.doctor)
app.command("matrix")(matrix.matrix)
app.command("clean")(clean.clean)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"toolkit {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: bool = typer.Option(False, "--version", callback=_print_version, is_eager=True, help="Print the version."),
) -> None:
    """TensorFlow for one exact GPU stack: build it, prove it, train with it."""
