from collections.abc import Callable
from typing import Any

import typer

from toolkit import __version__
from toolkit.cli import (
    build,
    card,
    chain,
    diagnose,
    graft,
    index,
    install,
    launch,
    machine,
    pins,
    report,
    reproduce,
    run,
    use,
    verify,
)
from toolkit.cli.help import Command, Group, JobCommand, SchedulerCommand

START, GET, TRAIN = "Start", "Get a TensorFlow", "Train"
USE, SHARE, FOLDER = "Use a run", "Check and share", "This folder"
"""The groups of commands, as `toolkit --help` shows them."""

app = typer.Typer(
    cls=Group,
    name="toolkit",
    help="Get a TensorFlow that runs on your NVIDIA card, check it, and train with it.",
    pretty_exceptions_enable=False,
    # Plain help, because loading rich would take longer than everything else together.
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

# All arguments and options after the data set belong to the training job.
PASS_ON: dict[str, Any] = {"allow_extra_args": True, "ignore_unknown_options": True}


def _add(
    group: str,
    name: str,
    function: Callable[..., None],
    short_help: str,
    *,
    kind: type[Command] = Command,
    to: typer.Typer = app,
) -> None:
    to.command(
        name,
        cls=kind,
        context_settings=PASS_ON if issubclass(kind, JobCommand) else None,
        rich_help_panel=group or None,
        short_help=short_help,
    )(function)


_add(START, "doctor", machine.doctor, "What this machine can do, with remedies.")
_add(START, "advise", machine.advise, "Which TensorFlow runs on a card: published, grafted, or built.")
_add(START, "diagnose", diagnose.diagnose, "What ended a program, by its log: why, and what to do.")
_add(START, "test-card", card.try_card, "Try all that a card is for, and write one report to send.")
_add(START, "up", chain.up, "The whole chain: wheel, image, smoke, training.", kind=JobCommand)

_add(GET, "install", install.install, "Install a TensorFlow into an environment of your own.")
_add(GET, "graft", graft.graft, "Put machine code for a later GPU into a published wheel.")
_add(GET, "build-wheel", build.build_wheel, "Build TensorFlow from source.")
_add(GET, "build-image", build.build_image, "Build the runtime or the training image.")
_add(GET, "smoke", run.smoke, "Check the TensorFlow of an image or of the host.")
_add(GET, "lock", pins.lock, "Freeze every pin of the chain, or check them.")
_add(GET, "matrix", pins.matrix, "What works with what, and the sources.")

_add(TRAIN, "train", run.train, "Train a DenseNet.", kind=JobCommand)
workers = typer.Typer(
    cls=Group,
    rich_markup_mode=None,
    help="Train on a cluster, with one worker or several.",
)
app.add_typer(
    workers,
    name="launch",
    rich_help_panel=TRAIN,
    short_help="Train on a cluster.",
)
_add("", "slurm", launch.slurm, "A job of a Slurm cluster.", kind=SchedulerCommand, to=workers)

_add(USE, "predict", use.predict, "Classify images by the network of a run.")
_add(USE, "serve", use.serve, "Serve the predictions of a run by HTTP.")
_add(USE, "evaluate", use.evaluate, "Measure the network of a run on test images.")
_add(USE, "export", use.export, "Write the network of a run for other programs.")
_add(USE, "report", report.report, "One page about a run, several runs, a wheel, an image or a report.")

_add(SHARE, "verify", verify.verify, "Check a wheel, an image or a run, and the chain behind it.")
_add(SHARE, "reproduce", reproduce.reproduce, "Build a wheel or train a run again, and compare.")
_add(SHARE, "sign", verify.sign, "Sign a wheel, an image, a smoke report or a run.")
keys = typer.Typer(cls=Group, help="Keys for signatures.", rich_markup_mode=None)
app.add_typer(keys, name="key", rich_help_panel=SHARE, short_help="Keys for signatures.")
_add("", "new", verify.make_key, "Make a key pair.", to=keys)
_add(SHARE, "push", build.push, "Push a wheel and its records to an OCI registry.")
_add(SHARE, "index", index.index, "Make a package index of wheels, as a folder of files.")

_add(FOLDER, "ls", machine.ls, "List what the toolkit made here: wheels, runs, environments, images.")
_add(FOLDER, "clean", machine.clean, "Remove what the toolkit made.")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"toolkit {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: bool = typer.Option(False, "--version", callback=_print_version, is_eager=True, help="Print the version."),
) -> None:
    """Get a TensorFlow that runs on your NVIDIA card, check it, and train with it."""
