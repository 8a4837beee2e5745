"""Options that several commands share, so that they read alike everywhere."""

import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from toolkit.console import Console
from toolkit.settings import Settings, resolve

Json = Annotated[bool, typer.Option("--json", help="Print the result as one JSON object on standard output.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing but errors and the result.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Say more.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the commands, ready to paste, and start nothing.")]
Tensorflow = Annotated[str | None, typer.Option("--tensorflow", metavar="X.Y.Z", help="Version of TensorFlow.")]
Cuda = Annotated[str | None, typer.Option("--cuda", metavar="X.Y.Z", help="CUDA release; without it, the CPU set.")]
Cudnn = Annotated[str | None, typer.Option("--cudnn", metavar="X.Y.Z", help="cuDNN release, with --cuda.")]
Engine = Annotated[str | None, typer.Option("--engine", metavar="auto|docker|host", help="Where things run.")]
BaseImage = Annotated[str | None, typer.Option("--base-image", metavar="REF", help="Image that the stages stand on.")]
CaBundle = Annotated[
    str | None, typer.Option("--ca-bundle", metavar="FILE", help="PEM file for networks that re-sign https.")
]
Wheel = Annotated[
    str | None,
    typer.Option("--wheel", metavar="FILE|DIR|pypi", help="A TensorFlow wheel to install; pypi: the published."),
]
Gpu = Annotated[
    bool | None,
    typer.Option("--gpu/--no-gpu", help="Give the job the GPUs; by default where CUDA is asked and one is."),
]
JUnit = Annotated[Path | None, typer.Option("--junit", metavar="FILE", help="Write a JUnit report too.")]


def open_console(*, json: bool, quiet: bool, verbose: bool) -> Console:
    """The console that the flags ask for; ``--json`` alone does not silence progress, which is on standard error."""
    return Console(json=json, verbosity=-1 if quiet else int(verbose))


def resolve_settings(console: Console, **flags: str | None) -> Settings:
    """Merge flags with the lower layers, and show with ``--verbose`` what came from where."""
    settings = resolve(flags)
    for name, item in settings.describe().items():
        console.detail(f"{name} = {item['value'] or '(none)'}  [{item['from']}]")
    return settings


def print_commands(console: Console, commands: Iterable[Sequence[str]]) -> None:
    """The result of a dry run: commands that a POSIX shell reads back as the same words."""
    listed = [list(argv) for argv in commands]
    console.result({"commands": listed}, "\n".join(shlex.join(argv) for argv in listed))
