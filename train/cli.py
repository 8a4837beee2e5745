"""Reads the command line of the job into a ``TrainConfig``, and runs it."""

import argparse
import json as json_
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer

from train.config import (
    Labels,
    Loop,
    Memory,
    Optimizer,
    Precision,
    Progress,
    Schedule,
    TrainConfig,
    follow,
    resolve,
)
from train.errors import DataError, TrainError, UsageError
from train.paths import translate
from train.reader import read_config

MODEL, TRAINING, SPEED, DATA, OUTPUT = "Model", "Training", "Speed and memory", "Data", "Output"


def _default_cache() -> str:
    return os.environ.get("TOOLKIT_DATA") or str(Path("~/.cache/toolkit/data").expanduser())


def _read_pair(text: str) -> tuple[int, int]:
    try:
        first, last = (int(part) for part in text.split(":"))
    except ValueError:
        raise UsageError(
            f"not a range of steps: {text!r}", remedy="write it as FIRST:LAST, for example 10:15"
        ) from None
    if not 0 < first <= last:
        raise UsageError(f"not a range of steps: {text!r}", why="the first step is 1, and the last is not before it")
    return first, last


def _read_batch_size(text: str) -> int:
    if text == "auto":
        return 0
    if not text.isdecimal() or int(text) < 1:
        raise UsageError(f"not a batch size: {text!r}", remedy="give a number of examples, or auto")
    return int(text)


def _read_blocks(text: str) -> tuple[int, ...]:
    try:
        return tuple(sorted({int(part) for part in text.split(",")}))
    except ValueError:
        raise UsageError(f"not a list of blocks: {text!r}", remedy="write it as 1,2") from None


def _collect(  # noqa: PLR0917
    context: typer.Context,
    dataset: Annotated[
        str | None, typer.Argument(help="digits, cifar10, cifar100, svhn or fashion_mnist.", metavar="DATASET")
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            help="The config.yaml or manifest.json of a run: do that run. Options beside it may say where things are "
            "and what is shown, and fill in threads and batch size where the run left them open.",
            metavar="FILE",
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="Preset: bc-100-12, 40-12, 121 and more; by default one that suits the data.", rich_help_panel=MODEL
        ),
    ] = None,
    depth: Annotated[int | None, typer.Option(help="Depth, instead of the preset's.", rich_help_panel=MODEL)] = None,
    growth: Annotated[int | None, typer.Option(help="Channels each layer adds.", rich_help_panel=MODEL)] = None,
    compression: Annotated[
        float | None, typer.Option(help="Share of channels a transition keeps.", rich_help_panel=MODEL)
    ] = None,
    bottleneck: Annotated[
        bool | None, typer.Option(help="1x1 convolution before each 3x3.", rich_help_panel=MODEL)
    ] = None,
    dropout: Annotated[
        float | None, typer.Option(help="Share of values dropped after a convolution.", rich_help_panel=MODEL)
    ] = None,
    recipe: Annotated[
        str | None, typer.Option(help="How to train: paper, quick or adam.", rich_help_panel=TRAINING)
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="Passes over the training data.", rich_help_panel=TRAINING)] = None,
    steps: Annotated[
        int | None,
        typer.Option(help="Length in steps, instead of epochs; the schedule follows.", rich_help_panel=TRAINING),
    ] = None,
    batch_size: Annotated[
        str | None,
        typer.Option(
            help="Examples in a step; auto finds the most that fit.", metavar="N|auto", rich_help_panel=TRAINING
        ),
    ] = None,
    memory_budget: Annotated[
        float,
        typer.Option(help="Gigabytes for --batch-size auto; 0 means most of what is free.", rich_help_panel=SPEED),
    ] = 0.0,
    optimizer: Annotated[Optimizer | None, typer.Option(help="Update rule.", rich_help_panel=TRAINING)] = None,
    learning_rate: Annotated[
        float | None, typer.Option(help="Highest learning rate.", rich_help_panel=TRAINING)
    ] = None,
    momentum: Annotated[
        float | None, typer.Option(help="Momentum, or Adam's first decay.", rich_help_panel=TRAINING)
    ] = None,
    weight_decay: Annotated[
        float | None, typer.Option(help="L2 penalty, added to the gradient.", rich_help_panel=TRAINING)
    ] = None,
    schedule: Annotated[
        Schedule | None, typer.Option(help="Learning rate over time.", rich_help_panel=TRAINING)
    ] = None,
    augment: Annotated[
        bool | None, typer.Option(help="Pad, crop and (where it makes sense) mirror.", rich_help_panel=TRAINING)
    ] = None,
    seed: Annotated[int, typer.Option(help="Source of all randomness.", rich_help_panel=TRAINING)] = 0,
    memory: Annotated[
        Memory, typer.Option(help="How dense blocks keep or recompute their maps.", rich_help_panel=SPEED)
    ] = "shared",
    recompute_blocks: Annotated[
        str | None,
        typer.Option(
            help="Only these dense blocks save memory, as 1,2; the others run plain.",
            metavar="N,…",
            rich_help_panel=SPEED,
        ),
    ] = None,
    precision: Annotated[
        Precision, typer.Option(help="Arithmetic of the layers; float64 is for proofs.", rich_help_panel=SPEED)
    ] = "float32",
    jit: Annotated[bool, typer.Option(help="Compile the step by XLA.", rich_help_panel=SPEED)] = False,
    tf32: Annotated[
        bool,
        typer.Option(
            "--tf32/--no-tf32",
            help="On newer GPUs, multiply float32 with 10 bits of mantissa: faster, less exact.",
            rich_help_panel=SPEED,
        ),
    ] = False,
    loop: Annotated[
        Loop, typer.Option(help="Compiled step, Keras' fit, or eager; the same numbers.", rich_help_panel=SPEED)
    ] = "function",
    threads: Annotated[
        int,
        typer.Option(
            help="Threads inside an operation; 0 means all cores that may be used. They decide the last bits.",
            rich_help_panel=SPEED,
        ),
    ] = 0,
    labels: Annotated[Labels, typer.Option(help="Which labels of cifar100.", rich_help_panel=DATA)] = "fine",
    extra: Annotated[bool, typer.Option(help="Also train on svhn's extra split.", rich_help_panel=DATA)] = False,
    validation: Annotated[
        int,
        typer.Option(
            help="Training examples held out; the curves then show them, and the test split is for the end.",
            rich_help_panel=DATA,
        ),
    ] = 0,
    data_dir: Annotated[
        str, typer.Option(help="Local copy of the data set.", metavar="DIR", rich_help_panel=DATA)
    ] = "",
    cache_dir: Annotated[
        str | None,
        typer.Option(
            help="Where downloads are kept; TOOLKIT_DATA or ~/.cache/toolkit/data.", metavar="DIR", rich_help_panel=DATA
        ),
    ] = None,
    out: Annotated[str, typer.Option(help="Parent of run folders.", metavar="DIR", rich_help_panel=OUTPUT)] = "runs",
    keep: Annotated[int, typer.Option(help="Checkpoints kept.", rich_help_panel=OUTPUT)] = 2,
    checkpoint_every: Annotated[
        int, typer.Option(help="Also save every so many steps, not only after an epoch.", rich_help_panel=OUTPUT)
    ] = 0,
    log_every: Annotated[int, typer.Option(help="Steps between step records.", rich_help_panel=OUTPUT)] = 10,
    profile: Annotated[
        str | None,
        typer.Option(help="Profile these steps for TensorBoard.", metavar="FIRST:LAST", rich_help_panel=OUTPUT),
    ] = None,
    progress: Annotated[
        Progress, typer.Option(help="Bar on a terminal, plain lines, or nothing.", rich_help_panel=OUTPUT)
    ] = "auto",
    json: Annotated[bool, typer.Option(help="Print the result as one JSON object.", rich_help_panel=OUTPUT)] = False,
) -> TrainConfig:
    """Train a DenseNet. The same command again resumes; a finished run is shown, not repeated."""
    values: dict[str, Any] = dict(locals())
    del values["context"], values["config"]
    values["profile"] = _read_pair(profile) if profile else None
    values["recompute_blocks"] = _read_blocks(recompute_blocks) if recompute_blocks else ()
    values["batch_size"] = _read_batch_size(batch_size) if batch_size else None
    values["cache_dir"] = cache_dir or _default_cache()
    if config is not None:
        return _follow(config, context, values)
    if dataset is None:
        raise UsageError(
            "Missing argument: DATASET", remedy="name a data set, or give --config the config.yaml of a run"
        )
    return resolve(values.pop("dataset"), **values)


def _follow(file: Path, context: typer.Context, values: dict[str, Any]) -> TrainConfig:
    """Return the run of a file, in the folder where it lies, with the options given on the command line."""
    try:
        recorded = read_config(file)
    except DataError as error:
        raise UsageError(error.what, why=error.why, remedy="give the config.yaml or manifest.json of a run") from error
    parent = file.absolute().parent
    out = values["out"] if parent.name != recorded.run_dir.name else str(parent.parent)
    own = {"out": out, "cache_dir": values["cache_dir"], "progress": values["progress"], "json": values["json"]}
    given = {name: value for name, value in values.items() if _is_given(context, name)}
    return follow(recorded, own | given)


def _is_given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


# Typer brings its own copy of click in newer releases and uses the real one in older ones: ask it for the right class.
_CommandLineError: Any = next(base for base in typer.BadParameter.__mro__ if base.__name__ == "ClickException")

_app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
_app.command(context_settings={"help_option_names": ["-h", "--help"]})(_collect)


def parse(argv: Sequence[str]) -> TrainConfig:
    """Read a command line without loading TensorFlow.

    Raises:
        UsageError: an option is unknown or its value makes no sense.
        SystemExit: help was asked for, and printed.
    """
    command = typer.main.get_command(_app)
    try:
        result = command.main(list(argv), prog_name="python -m train", standalone_mode=False)
    except _CommandLineError as error:
        raise UsageError(error.format_message(), remedy="python -m train --help") from error
    if not isinstance(result, TrainConfig):
        raise SystemExit(0)
    return result


def find_config(argv: Sequence[str]) -> Path | None:
    """Return the file that ``--config`` names on a command line, without reading it."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--config", type=Path)
    found: Path | None = parser.parse_known_args(list(argv))[0].config
    return found


def main(argv: Sequence[str] | None = None, *, close_network: bool = False) -> int:
    """Run the job; returns the exit code.

    With `close_network` the process gives up the network for good once its data is loaded.
    """
    try:
        config = parse(sys.argv[1:] if argv is None else argv)
        result = _find_result(config)
        if result is None:
            from train.job import run

            result = run(config, close_network=close_network)
        elif config.progress != "quiet":
            _print(f"{config.run_dir} is complete; nothing to do", sys.stderr)
    except TrainError as error:
        _print(f"error: {error}", sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        _print("interrupted", sys.stderr)
        return 130
    if config.json:
        _print(json_.dumps(result), sys.stdout, as_it_is=True)
    elif config.progress != "quiet":
        _print(_describe(config, result), sys.stdout)
    return 0


def _print(text: str, stream: TextIO, *, as_it_is: bool = False) -> None:
    """Print, with the user's names of files; a reader that has gone away changes nothing.

    What cannot be written is thrown away, so that the interpreter does not fail with it at exit (Python documentation,
    "Note on SIGPIPE").
    """
    try:
        print(text if as_it_is else translate(text), file=stream, flush=True)
    except OSError:
        with open(os.devnull, "w", encoding="utf-8") as nowhere:  # noqa: PTH123
            os.dup2(nowhere.fileno(), stream.fileno())


def _find_result(config: TrainConfig) -> dict[str, Any] | None:
    try:
        manifest = json_.loads((config.run_dir / "manifest.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    same = isinstance(manifest, dict) and manifest.get("config_sha256") == config.digest
    return manifest if same and manifest.get("status") == "complete" else None


def _describe(config: TrainConfig, manifest: dict[str, Any]) -> str:
    result = manifest["result"]
    return (
        f"{config.dataset} by {config.model}: test accuracy {result['test_accuracy']:.2%}, "
        f"{result['epochs']} epochs, {result['steps']} steps in {result['train_seconds']:.0f} s\n"
        f"{config.run_dir / 'curves.png'}"
    )
