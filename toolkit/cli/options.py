"""Options that several commands share, so that they read alike everywhere."""

import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from toolkit.console import Console

SETTINGS = {
    "tensorflow": Annotated[str | None, typer.Option(metavar="X.Y.Z", help="Version of TensorFlow.")],
    "python": Annotated[str | None, typer.Option(metavar="X.Y", help="Version of Python.")],
    "cuda": Annotated[str | None, typer.Option(metavar="X.Y.Z", help="CUDA release, exactly.")],
    "cudnn": Annotated[str | None, typer.Option(metavar="X.Y.Z", help="cuDNN release, exactly.")],
    "engine": Annotated[str | None, typer.Option(metavar="auto|docker|host", help="Where things run.")],
    "base_image": Annotated[str | None, typer.Option(metavar="REF", help="Image that the stages stand on.")],
    "ca_bundle": Annotated[str | None, typer.Option(metavar="FILE", help="PEM file for networks that re-sign https.")],
}
"""Options that are settings: a flag that is not given leaves the lower layers to speak."""

OUTPUT = {
    "json": Annotated[bool, typer.Option("--json", help="Print the result as one JSON object on standard output.")],
    "quiet": Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing but errors and the result.")],
    "verbose": Annotated[bool, typer.Option("--verbose", "-v", help="Say more.")],
}
"""Options of every command."""

Dataset = Annotated[str, typer.Argument(help="digits, cifar10, cifar100, svhn or fashion_mnist.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the commands, ready to paste, and start nothing.")]
Wheel = Annotated[
    str | None,
    typer.Option(metavar="FILE|DIR|pypi", help="A TensorFlow wheel to install; pypi: the published one."),
]
Gpu = Annotated[
    bool | None,
    typer.Option("--gpu/--no-gpu", help="Give the job the GPUs; by default where CUDA is asked and one is."),
]
JUnit = Annotated[Path | None, typer.Option("--junit", metavar="FILE", help="Write a JUnit report too.")]
Capabilities = Annotated[
    list[str] | None, typer.Option(metavar="X.Y", help="GPU to build for: 7.5, sm_75 or compute_75; repeatable.")
]
Source = Annotated[str, typer.Option(metavar="DIR|URL#COMMIT", help="Another source tree of TensorFlow.")]
Bazel = Annotated[str, typer.Option(metavar="DIR|docker-image://NAME", help="Another Bazel.")]
Jobs = Annotated[int, typer.Option(min=0, help="Parallel actions of Bazel; 0: by cores and memory.")]
Snapshot = Annotated[str, typer.Option(metavar="DAY", help="Day of Debian's archive: 20261121T000000Z.")]
Bazelrc = Annotated[str, typer.Option(metavar="FILE", help="Credentials of a remote cache or executor; in no layer.")]


def print_commands(console: Console, commands: Iterable[Sequence[str]]) -> None:
    """The result of a dry run: commands that a POSIX shell reads back as the same words."""
    listed = [list(argv) for argv in commands]
    console.result({"commands": listed}, "\n".join(shlex.join(argv) for argv in listed))
