"""Reads the command line of the job: options, a recorded configuration, or a run to go on with."""

import dataclasses
import inspect
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import MISSING
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Any, Final, get_args, get_type_hints

import typer

from train.config.configuration import DEPTH, OPTIONS, TrainConfig
from train.config.option import UNSET, Panel, list_options
from train.config.presets import describe_datasets
from train.config.resolution import apply_options, resolve
from train.errors import DataError, UsageError
from train.system import addresses, signals


def default_cache() -> str:
    return os.environ.get("TOOLKIT_DATA") or str(Path("~/.cache/toolkit/data").expanduser())


_DATASET: Final = typer.Argument(help=describe_datasets(), metavar="DATASET")
_FILE: Final = typer.Option(
    help="The config.yaml or manifest.json of a run: do that run. Options beside it may say where things are and what "
    "is shown, and fill in threads and batch size where the run left them open.",
    metavar="FILE",
)


def declare_options(configuration: type = TrainConfig) -> Iterator[inspect.Parameter]:
    """Yield a parameter of the command for each option of a configuration, by panels."""
    fields = {field.name: field.default for field in dataclasses.fields(configuration)}
    kinds = get_type_hints(configuration) | {"depth": int}
    shown = [(name, option) for name, option in {"depth": DEPTH, **list_options(configuration)}.items() if option.help]
    for name, option in sorted(shown, key=lambda pair: get_args(Panel).index(pair[1].panel)):
        default = fields.get(name, MISSING) if option.asked is UNSET else option.asked
        kind, default = str if option.read else kinds[name], None if default is MISSING else default
        flags = [option.flag] if option.flag else []
        made = typer.Option(*flags, help=option.help, metavar=option.metavar, rich_help_panel=option.panel)
        yield _declare(name, Annotated[kind | None if default is None else kind, made], default)


def _declare(name: str, kind: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)


def give_options(function: Callable[..., Any], configuration: type = TrainConfig) -> Callable[..., Any]:
    """Give a function the parameters that Typer reads from its signature and annotations."""
    leading = [
        parameter
        for parameter in inspect.signature(function).parameters.values()
        if parameter.kind is not parameter.VAR_KEYWORD
    ]
    leading.append(_declare("dataset", Annotated[str | None, _DATASET], None))
    leading.append(_declare("config", Annotated[Path | None, _FILE], None))
    parameters = [*leading, *declare_options(configuration)]
    function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    function.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return function


@give_options
def _collect(context: typer.Context, **values: Any) -> TrainConfig:
    """Train a DenseNet. The same command again resumes; a finished run is shown, not repeated."""
    file = values.pop("config")
    for name, option in OPTIONS.items():
        if option.read and values[name] is not None:
            values[name] = option.read(values[name])
    values["cache_dir"] = values["cache_dir"] or default_cache()
    begins, goes_on = values["init_from"], values["continue_from"]
    if begins and goes_on:
        raise UsageError("--init-from begins a run anew, and --continue goes on with one", remedy="leave one out")
    if begins and file is None:
        from train.record import initial  # only ``--init-from`` needs it

        trunk = initial.describe_weights(begins)
        values |= {name: trunk.pop(name) for name in ("init_sha256", "padding")} | {"trunk": trunk}
    if file is not None:
        return _follow(file, context, values)
    if goes_on:
        return _extend(Path(goes_on), context, values)
    if values["dataset"] is None:
        raise UsageError(
            "Missing argument: DATASET", remedy="name a data set, or give --config the config.yaml of a run"
        )
    return resolve(values.pop("dataset"), **values)


def _follow(file: Path, context: typer.Context, values: dict[str, Any]) -> TrainConfig:
    """Return the configuration in a file, changed by options. A run whose file is in its own folder stays there."""
    from train.record.reader import read_config  # only ``--config`` needs it

    try:
        recorded = read_config(file)
    except DataError as error:
        raise UsageError(error.what, why=error.why, remedy="give the config.yaml or manifest.json of a run") from error
    parent = file.absolute().parent
    out = values["out"] if parent.name != recorded.run_dir.name else str(parent.parent)
    return _change(recorded, {**values, "out": out}, _find_given(context, values))


def _extend(run: Path, context: typer.Context, values: dict[str, Any]) -> TrainConfig:
    from train.record import initial  # only ``--continue`` needs it

    given = _find_given(context, values)
    recorded = initial.extend(run, given)
    others = {name: value for name, value in given.items() if name not in {*initial.CHANGED, "continue_from"}}
    return _change(recorded, values, others)


def _find_given(context: typer.Context, values: dict[str, Any]) -> dict[str, Any]:
    sources = {name: context.get_parameter_source(name) for name in values}
    return {name: values[name] for name, source in sources.items() if source and source.name == "COMMANDLINE"}


def _change(recorded: TrainConfig, values: dict[str, Any], given: dict[str, Any]) -> TrainConfig:
    """Return a recorded configuration with the output of this command, and the options that were given."""
    names = ("out", "cache_dir", "progress", "log_format", "json", "report_broken", "strict_data")
    output_options = {name: values[name] for name in names}
    if recorded.data_sha256 and given.get("dataset", recorded.dataset) != recorded.dataset:
        given = {"data_dir": given.pop("dataset")} | given  # the path of the same data
    return apply_options(recorded, output_options | given)


# Newer releases of Typer contain a copy of click, older ones import click. Take the class from the one in use.
_CommandLineError: Any = next(base for base in typer.BadParameter.__mro__ if base.__name__ == "ClickException")


def make_app(function: Callable[..., Any], **settings: Any) -> typer.Typer:
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    app.command(**settings)(function)
    return app


HELP = {"help_option_names": ["-h", "--help"]}
app = make_app(_collect, context_settings=HELP)


def parse(argv: Sequence[str]) -> TrainConfig:
    """Read a command line without loading TensorFlow. Raises a UsageError, or SystemExit after it has printed help."""
    result = call(app, argv, "python -m train")
    if not isinstance(result, TrainConfig):
        raise SystemExit(0)
    return result


def call(app: typer.Typer, argv: Sequence[str], program: str) -> Any:
    if credentials := addresses.find_in(argv):
        raise UsageError(
            f"an option has {credentials} in an address",
            why="it would stand in the records of the run",
            remedy="leave it out: HF_TOKEN and .netrc keep credentials",
        )
    try:
        result = typer.main.get_command(app).main(list(argv), prog_name=program, standalone_mode=False)
    except _CommandLineError as error:
        raise explain_usage(error, program) from error
    signals.check()  # Typer turns an interrupt into a result
    return result


_NUMBERS: Final = {"valid integer": "is no whole number", "valid number": "is no number"}


def explain_usage(error: Any, program: str) -> UsageError:
    """Turn Typer's error about a command line, whose class is not public, into a UsageError."""
    message, context = str(error.format_message()).rstrip("."), getattr(error, "ctx", None)
    for theirs, ours in _NUMBERS.items():
        if theirs in message and (option := re.search(r"'(--?[\w-]+)'|for '(\w+)'", message)):
            message = f"the value of {option[1] or option[2]} {ours}"
    if missing := re.fullmatch(r"Missing argument '(\w+)(?:\.\.\.)?'", message):
        message = f"{missing[1].upper()} is missing"
    usage = " ".join(context.get_usage().split()).removeprefix("Usage: ") if context else ""
    usage = re.sub(r"\{(\w+)\}", lambda argument: argument[1].upper(), usage)  # Typer puts braces around an argument
    path = context.command_path if context else program
    return UsageError(message, why=f"the usage is: {usage}" if usage else "", remedy=f"{path} --help")


def find_config(argv: Sequence[str]) -> Path | None:
    """Return the file that ``--config`` names on a valid command line, without reading it."""
    value = find_value(argv, "--config")
    return Path(value) if value else None


def find_value(argv: Sequence[str], option: str) -> str:
    """Return the last value of an option on a command line; empty if it is not there."""
    found = ""
    for word, following in zip_longest(argv, argv[1:], fillvalue=""):
        name, equals, value = word.partition("=")
        if name == option:
            found = value if equals else following
    return found
