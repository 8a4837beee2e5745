import json as json_
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer

from train.cluster.cluster import read_cluster
from train.config.resolution import follow, resolve
from train.config.run import (
    ClassWeights,
    Crop,
    Kernels,
    Labels,
    Loop,
    Memory,
    Normalize,
    Optimizer,
    Precision,
    Progress,
    Schedule,
    TrainConfig,
    describe_datasets,
)
from train.errors import DataError, TrainError, UsageError, explaining_failures
from train.run.progress import translate


def _group(title: str) -> Callable[..., Any]:
    return lambda text, metavar=None: typer.Option(help=text, metavar=metavar, rich_help_panel=title)


_model, _training, _speed = _group("Model"), _group("Training"), _group("Speed and memory")
_data, _output = _group("Data"), _group("Output")


def default_cache() -> str:
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


def _read_freeze(text: str) -> int:
    if text == "all":
        return -1
    if not text.isdecimal():
        raise UsageError(f"not a number of blocks: {text!r}", remedy="give a number, or all")
    return int(text)


def _read_blocks(text: str) -> tuple[int, ...]:
    try:
        return tuple(sorted({int(part) for part in text.split(",")}))
    except ValueError:
        raise UsageError(f"not a list of blocks: {text!r}", remedy="write it as 1,2") from None


def _collect(  # noqa: PLR0917
    context: typer.Context,
    dataset: Annotated[
        str | None,
        typer.Argument(help=describe_datasets(), metavar="DATASET"),
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
        str | None, _model("Preset: bc-100-12, 40-12, 121 and more; by default one that suits the data.")
    ] = None,
    depth: Annotated[int | None, _model("Depth, instead of the preset's.")] = None,
    growth: Annotated[int | None, _model("Channels each layer adds.")] = None,
    compression: Annotated[float | None, _model("Share of channels a transition keeps.")] = None,
    bottleneck: Annotated[bool | None, _model("1x1 convolution before each 3x3.")] = None,
    dropout: Annotated[float | None, _model("Share of values dropped after a convolution.")] = None,
    recipe: Annotated[str | None, _training("How to train: paper, quick or adam.")] = None,
    epochs: Annotated[int | None, _training("Passes over the training data.")] = None,
    steps: Annotated[int | None, _training("Length in steps, instead of epochs; the schedule follows.")] = None,
    batch_size: Annotated[str | None, _training("Examples in a step; auto finds the most that fit.", "N|auto")] = None,
    memory_budget: Annotated[float, _speed("Gigabytes for --batch-size auto; 0 means most of what is free.")] = 0.0,
    optimizer: Annotated[Optimizer | None, _training("Update rule.")] = None,
    learning_rate: Annotated[float | None, _training("Highest learning rate.")] = None,
    momentum: Annotated[float | None, _training("Momentum, or Adam's first decay.")] = None,
    weight_decay: Annotated[
        float | None, _training("L2 penalty, added to the gradient; adamw shrinks weights.")
    ] = None,
    schedule: Annotated[Schedule | None, _training("Learning rate over time.")] = None,
    augment: Annotated[bool | None, _training("Pad, crop and (where it makes sense) mirror.")] = None,
    crop: Annotated[
        Crop, _training("Shift images, or take random parts of them, resized; auto goes by their size.")
    ] = "auto",
    flip: Annotated[bool, _training("Mirror images, where the data set does not forbid it.")] = True,
    warm_up: Annotated[float, _training("Epochs in which the learning rate rises to its highest.")] = 0.0,
    label_smoothing: Annotated[float, _training("Share of a target that all classes get.")] = 0.0,
    class_weights: Annotated[
        ClassWeights, _training("balanced: the fewer images a class has, the more each of them counts.")
    ] = "equal",
    cutout: Annotated[int, _training("Fill a square of so many pixels in each training image.")] = 0,
    randaugment: Annotated[
        int, _training("Change each training image by so many random operations (RandAugment's N), such as 2.")
    ] = 0,
    magnitude: Annotated[int, _training("Strength of these operations (RandAugment's M), up to 30.")] = 9,
    mixup: Annotated[
        float, _training("Mix pairs of images; the parameter of the beta distribution, such as 0.2.")
    ] = 0.0,
    decay_norms: Annotated[bool, _training("Weight decay also of norms and biases.")] = True,
    clip_norm: Annotated[float, _training("Highest norm of the gradient of all weights; 0 means any.")] = 0.0,
    accumulate: Annotated[int, _training("Parts of a batch that are run one after the other, to save memory.")] = 1,
    shards: Annotated[
        int, _training("Parts of a batch, shared by workers; they decide the weights, the number of workers does not.")
    ] = 1,
    sync_norm: Annotated[bool, _training("Norms take mean and variance of all shards: of the whole batch.")] = False,
    ema: Annotated[
        float, _training("Evaluate running averages of the weights, which keep this share at each step, such as 0.999.")
    ] = 0.0,
    best: Annotated[bool, _training("End with the weights of the epoch with the best validation accuracy.")] = False,
    patience: Annotated[int, _training("Stop after so many epochs without a better validation accuracy.")] = 0,
    seed: Annotated[int, _training("Source of all randomness.")] = 0,
    init_from: Annotated[
        str | None,
        _training(
            "Start from the weights of a run, of a file of keras.applications, or keras:densenet121 (169, 201); other "
            "classes get a new classifier.",
            "RUN|FILE|NAME",
        ),
    ] = None,
    continue_from: Annotated[
        str | None,
        typer.Option(
            "--continue",
            help="Go on with this finished run up to a greater --epochs or --steps, as a new run. Other options are "
            "those of the run, but --schedule and --learning-rate may change.",
            metavar="RUN",
            rich_help_panel="Training",
        ),
    ] = None,
    freeze: Annotated[
        str,
        _training(
            "Dense blocks, from the first on, that keep their initial weights; all trains the classifier.", "N|all"
        ),
    ] = "0",
    memory: Annotated[Memory, _speed("How dense blocks keep or recompute their maps.")] = "shared",
    recompute_blocks: Annotated[
        str | None, _speed("Only these dense blocks save memory, as 1,2; the others run plain.", "N,…")
    ] = None,
    precision: Annotated[Precision, _speed("Arithmetic of the layers; float64 is for proofs.")] = "float32",
    jit: Annotated[bool, _speed("Compile the step by XLA.")] = False,
    tf32: Annotated[
        bool, _speed("On newer GPUs, multiply float32 with 10 bits of mantissa: faster, less exact.")
    ] = False,
    kernels: Annotated[
        Kernels,
        _speed(
            "TensorFlow's kernels, or our own for CPUs, which give the same weights on every x86-64 processor; auto "
            "takes native where they work."
        ),
    ] = "auto",
    loop: Annotated[Loop, _speed("Compiled step, Keras' fit, or eager; the same numbers.")] = "function",
    threads: Annotated[
        int, _speed("Threads inside an operation; 0 means all cores that may be used. They decide the last bits.")
    ] = 0,
    labels: Annotated[Labels, _data("Which labels of cifar100.")] = "fine",
    extra: Annotated[bool | None, _data("Also train on svhn's extra split, as the paper does.")] = None,
    normalize: Annotated[
        Normalize | None, _data("Mean 0 and deviation 1 by channel, or bytes divided by 255, as in the paper for svhn.")
    ] = None,
    validation: Annotated[
        int, _data("Training examples held out; the curves then show them, and the test split is for the end.")
    ] = 0,
    image_size: Annotated[
        int, _data("Size of your images for the network; 0 keeps small ones of one size, and makes others 224.")
    ] = 0,
    image_column: Annotated[str, _data("Column of the images in your tables.", "NAME")] = "",
    label_column: Annotated[str, _data("Column of the labels in your tables.", "NAME")] = "",
    split: Annotated[str, _data("Splits of your data to train and to test on.", "TRAIN[:TEST]")] = "",
    skip_broken: Annotated[bool, _data("Leave out images that cannot be read, and count them.")] = False,
    data_dir: Annotated[str, _data("Local copy of the data set.", "DIR")] = "",
    cache_dir: Annotated[
        str | None, _data("Where downloads are kept; TOOLKIT_DATA or ~/.cache/toolkit/data.", "DIR")
    ] = None,
    out: Annotated[str, _output("Parent of run folders.", "DIR")] = "runs",
    keep: Annotated[int, _output("Checkpoints kept.")] = 2,
    checkpoint_every: Annotated[int, _output("Also save every so many steps, not only after an epoch.")] = 0,
    log_every: Annotated[int, _output("Steps between step records.")] = 10,
    log_to: Annotated[
        str, _output("Also send records to mlflow, wandb or both, as their environment variables say.", "NAME,…")
    ] = "",
    profile: Annotated[str | None, _output("Profile these steps for TensorBoard.", "FIRST:LAST")] = None,
    progress: Annotated[Progress, _output("Bar on a terminal, plain lines, or nothing.")] = "auto",
    json: Annotated[bool, _output("Print the result as one JSON object.")] = False,
) -> TrainConfig:
    """Train a DenseNet. The same command again resumes; a finished run is shown, not repeated."""
    values: dict[str, Any] = dict(locals())
    del values["context"], values["config"]
    values["profile"] = _read_pair(profile) if profile else None
    values["recompute_blocks"] = _read_blocks(recompute_blocks) if recompute_blocks else ()
    values["batch_size"] = _read_batch_size(batch_size) if batch_size else None
    values["cache_dir"] = cache_dir or default_cache()
    values["log_to"] = tuple(filter(None, log_to.split(",")))
    values["freeze"] = _read_freeze(freeze)
    if init_from and continue_from:
        raise UsageError("--init-from begins a run anew, and --continue goes on with one", remedy="leave one out")
    if init_from and config is None:
        from train.run import initial  # only ``--init-from`` needs it

        trunk = initial.describe(init_from)
        values |= {name: trunk.pop(name) for name in ("init_sha256", "padding")} | {"trunk": trunk}
    if config is not None:
        return _follow(config, context, values)
    if continue_from:
        return _extend(Path(continue_from), context, values)
    if dataset is None:
        raise UsageError(
            "Missing argument: DATASET", remedy="name a data set, or give --config the config.yaml of a run"
        )
    return resolve(values.pop("dataset"), **values)


def _follow(file: Path, context: typer.Context, values: dict[str, Any]) -> TrainConfig:
    """Return the configuration in a file, changed by options. The run stays in the file's folder if that is its own."""
    from train.record.reader import read_config  # only ``--config`` needs it

    try:
        recorded = read_config(file)
    except DataError as error:
        raise UsageError(error.what, why=error.why, remedy="give the config.yaml or manifest.json of a run") from error
    parent = file.absolute().parent
    out = values["out"] if parent.name != recorded.run_dir.name else str(parent.parent)
    return _change(recorded, {**values, "out": out}, _find_given(context, values))


def _extend(run: Path, context: typer.Context, values: dict[str, Any]) -> TrainConfig:
    from train.run import continuation  # only ``--continue`` needs it

    given = _find_given(context, values)
    recorded = continuation.extend(run, given)
    kept = {name: value for name, value in given.items() if name not in {*continuation.CHANGED, "continue_from"}}
    return _change(recorded, values, kept)


def _find_given(context: typer.Context, values: dict[str, Any]) -> dict[str, Any]:
    sources = {name: context.get_parameter_source(name) for name in values}
    return {name: values[name] for name, source in sources.items() if source and source.name == "COMMANDLINE"}


def _change(recorded: TrainConfig, values: dict[str, Any], given: dict[str, Any]) -> TrainConfig:
    """Return a recorded configuration with the output of this command, and the options that were given."""
    own = {name: values[name] for name in ("out", "cache_dir", "progress", "json")}
    if recorded.data_sha256 and given.get("dataset", recorded.dataset) != recorded.dataset:
        given = {"data_dir": given.pop("dataset")} | given  # the path of the same data
    return follow(recorded, own | given)


# Newer releases of Typer contain a copy of click, older ones import click. Take the class from the one in use.
_CommandLineError: Any = next(base for base in typer.BadParameter.__mro__ if base.__name__ == "ClickException")


def make_app(function: Callable[..., Any], **settings: Any) -> typer.Typer:
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    app.command(**settings)(function)
    return app


_HELP = {"help_option_names": ["-h", "--help"]}
_app = make_app(_collect, context_settings=_HELP)


def parse(argv: Sequence[str]) -> TrainConfig:
    """Read a command line without loading TensorFlow. Raises a UsageError, or SystemExit after it has printed help."""
    result = _call(_app, argv, "python -m train")
    if not isinstance(result, TrainConfig):
        raise SystemExit(0)
    return result


def run_command(function: Callable[..., int], name: str, argv: Sequence[str]) -> int:
    """Run a command by its function and arguments; prints its errors, and returns the exit code."""
    app = make_app(function, context_settings=_HELP)
    return _explain(lambda: int(_call(app, argv, f"python -m train {name}") or 0))


def _call(app: typer.Typer, argv: Sequence[str], program: str) -> Any:
    try:
        return typer.main.get_command(app).main(list(argv), prog_name=program, standalone_mode=False)
    except _CommandLineError as error:
        raise UsageError(error.format_message(), remedy=f"{program} --help") from error


def find_config(argv: Sequence[str]) -> Path | None:
    """Return the file that ``--config`` names on a valid command line, without reading it."""
    found = None
    for word, following in zip(argv, [*argv[1:], ""], strict=True):
        name, equals, value = word.partition("=")
        if name == "--config":
            found = Path(value if equals else following)
    return found


def main(argv: Sequence[str] | None = None, *, close_network: bool = False) -> int:
    """Run the job; returns the exit code. See ``train.run.job.run`` for `close_network`."""
    return _explain(lambda: _train(sys.argv[1:] if argv is None else argv, close_network=close_network))


def _train(argv: Sequence[str], *, close_network: bool) -> int:
    config, cluster = parse(argv), read_cluster()
    result = find_result(config) if not cluster or cluster.is_chief else None
    if result is None:
        from train.run.job import run

        number = f"-{cluster.index}" if cluster and not cluster.is_chief else ""
        with explaining_failures(config.run_dir / f"failure{number}.txt"):
            result = run(config, close_network=close_network)
    else:
        if cluster:
            from train.cluster.workers import dismiss

            dismiss(cluster)
        if config.progress != "quiet":
            _print(f"{config.run_dir} is complete; nothing to do", sys.stderr)
    if config.json and result:
        _print(json_.dumps(result), sys.stdout, as_it_is=True)
    elif config.progress != "quiet" and result:
        _print(_describe(config, result), sys.stdout)
    return 0


def _explain(command: Callable[[], int]) -> int:
    try:
        return command()
    except TrainError as error:
        _print(f"error: {error}", sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        _print("interrupted", sys.stderr)
        return 130


def _print(text: str, stream: TextIO, *, as_it_is: bool = False) -> None:
    """Print with the user's file names. A closed stream is replaced, or Python would fail at exit."""
    try:
        print(text if as_it_is else translate(text), file=stream, flush=True)
    except OSError:
        with open(os.devnull, "w", encoding="utf-8") as nowhere:  # noqa: PTH123
            os.dup2(nowhere.fileno(), stream.fileno())


def find_result(config: TrainConfig) -> dict[str, Any] | None:
    try:
        path = config.run_dir / "manifest.json"
        manifest = json_.loads(path.read_text(encoding="utf-8")) if path.is_file() else None
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(manifest, dict) or manifest.get("config_sha256") != config.digest:
        return None
    return manifest if manifest.get("status") == "complete" else None


def _describe(config: TrainConfig, manifest: dict[str, Any]) -> str:
    result = manifest["result"]
    return (
        f"{config.dataset} by {manifest['config']['model']}: test accuracy {result['test_accuracy']:.2%}, "
        f"{result['epochs']} epochs, {result['steps']} steps in {result['train_seconds']:.0f} s\n"
        f"{config.run_dir / 'curves.png'}"
    )
