import functools
import inspect
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, get_origin, get_type_hints

import typer

from toolkit.base.console import Console
from toolkit.base.errors import InterruptionError, JobError, ToolkitError, UsageError
from toolkit.cli.help import SHARED_PANEL
from toolkit.versions.set import VERSIONS
from toolkit.versions.settings import OPTIONS, Settings, resolve
from toolkit.wheel.build_options import BuildOptions, list_options
from train.config.presets import describe_datasets, read_table
from train.system import addresses, output, signals
from train.system.files import explain_path


def _make_option(declared: Mapping[str, Any]) -> Any:
    choices = declared.get("choices", ())
    metadata = typer.Option(
        metavar=declared.get("metavar") or "|".join(choices),
        help=declared["help"],
        autocompletion=(lambda: choices) if choices else None,
        rich_help_panel=SHARED_PANEL,
    )
    return Annotated[str | None, metadata]


SETTINGS = {
    name: _make_option(item.metadata) for name, item in OPTIONS.items() if item.metadata.keys() & {"metavar", "choices"}
}
"""Options that are settings: without a flag, the value comes from a lower layer."""

ENVIRONMENT = (*VERSIONS, "card", "engine", "archive", "base_image", "ca_bundle")
"""The settings that choose the environment or image in which a job runs."""

OUTPUT = {
    name: Annotated[bool, typer.Option(*words, help=meaning, rich_help_panel=SHARED_PANEL)]
    for name, words, meaning in (
        ("json", ("--json",), "Print the result as one JSON object on standard output."),
        ("quiet", ("--quiet", "-q"), "Say nothing but errors and the result."),
        ("verbose", ("--verbose", "-v"), "Say more."),
    )
}
"""Options of every command."""

Dataset = Annotated[
    str, typer.Argument(help=describe_datasets(), metavar="DATASET", autocompletion=lambda: [*read_table("datasets")])
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the commands, ready to paste, and start nothing.")]
DataDir = Annotated[
    str, typer.Option(metavar="DIR", help="Where the local copy of the data is now, for a run that read one.")
]
SourcePath = Annotated[
    str, typer.Option(metavar="PATH", help="Where the run or file is now from which this run started or was resumed.")
]
Wheel = Annotated[
    str | None,
    typer.Option(metavar="FILE|DIR|pypi", help="A TensorFlow wheel to install; pypi: the published one."),
]
Gpu = Annotated[
    bool | None,
    typer.Option("--gpu/--no-gpu", help="Use GPUs. Default: yes, if CUDA is wanted and the machine has a GPU."),
]
Out = Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder of finished wheels.")]
JUnit = Annotated[Path | None, typer.Option("--junit", metavar="FILE", help="Write a JUnit report too.")]
Sign = Annotated[
    str,
    typer.Option(
        "--sign",
        metavar="KEY",
        help="Sign the result with this private key: a file, or env:NAME.",
    ),
]
From = Annotated[
    str,
    typer.Option(
        "--from",
        metavar="REGISTRY/REPO",
        help="Look in this registry first, and download the wheel of the same plan if it has one.",
    ),
]
Trust = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="PUBKEY|POLICY", help="A public key, or a policy of who may sign what: require signatures; repeatable."
    ),
]
Accept = Annotated[
    str,
    typer.Option(
        metavar="LEVEL",
        help="For a wheel: the lowest level of a second build that passes. R3: identical wheels. R2: RECORD and time "
        "stamps may differ. R1: contents may differ, code too.",
    ),
]
AllowUnsigned = Annotated[
    bool, typer.Option("--allow-unsigned", help="With --from, in place of --trust: take any wheel of the plan.")
]


@dataclass(frozen=True)
class Session:
    console: Console
    settings: Settings


def command(
    *shared: str,
    build: Sequence[str] = (),
    remember: bool = False,
    long: bool = False,
    partial: bool = False,
    **fixed: str,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Turn a function whose first parameter is ``session`` into a command with the ``shared`` settings as options.

    ``build``: fields of :class:`toolkit.wheel.build_options.BuildOptions` that are options of the command; the function
    gets them all as its parameter ``options``. ``fixed``: settings that it sets itself. ``remember``: whether digests
    are cached. ``long``: whether it may take long, and shows its progress. ``partial``: whether it chooses those of
    NVIDIA's libraries that are not asked for.
    """

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(function, eval_str=True)
        named = (*shared, "progress") if long else shared
        parameters = []
        for name, parameter in signature.parameters.items():
            if name == "options":
                parameters += _make_build_parameters(build)
            elif name != "session":
                parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))
        common = [_make_parameter(name, SETTINGS[name], None) for name in named]
        common += [_make_parameter(name, annotation, False) for name, annotation in OUTPUT.items()]

        @functools.wraps(function)
        def run(**given: Any) -> None:
            output = {name: given.pop(name) for name in OUTPUT}
            flags = {name: given.pop(name) for name in named}
            console = Console(json=output["json"], verbosity=-1 if output["quiet"] else int(output["verbose"]))
            with _reporting(console):
                _require_no_credentials(given)
                if build:
                    given["options"] = _take_build_options(given, build)
                settings = _resolve(console, flags, fixed, partial=partial)
                with _remembering(settings, keep=not given.get("dry_run")) if remember else nullcontext():
                    function(Session(console, settings), **given)
                signals.check()
                console.close()

        run.__signature__ = inspect.Signature([*parameters, *common])  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in [*parameters, *common]}
        return run

    return decorate


def _require_no_credentials(given: Mapping[str, object]) -> None:
    """Raise UsageError for an address with credentials, which would stand in records, in logs and on the terminal."""
    for name, value in given.items():
        words = getattr(value, "args", None)  # of a context: what the job gets
        if credentials := addresses.find_in([value] if words is None else words):
            option = name.strip("_").replace("_", "-") if words is None else "an option of the job"
            raise UsageError(
                f"{option} has {credentials} in an address",
                why="it would stand in records and logs",
                remedy="leave it out: `docker login`, git's credential helper, .netrc and a file of --bazelrc keep "
                "credentials",
            )


def _make_parameter(name: str, annotation: object, default: object) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _make_build_parameters(names: Sequence[str]) -> list[inspect.Parameter]:
    """Return the parameters of options of a build, as :class:`BuildOptions` declares them."""
    declared, types, defaults = list_options(), get_type_hints(BuildOptions), BuildOptions()
    parameters = []
    for name in names:
        kind, default, option = types[name], getattr(defaults, name), declared[name]
        if get_origin(kind) is tuple:
            kind, default = list[str] | None, None
        written = (option.name,) if option.name else ()
        metadata = typer.Option(*written, min=option.least, metavar=option.metavar, help=option.help)
        parameters.append(_make_parameter(name, Annotated[kind, metadata], default))
    return parameters


def _take_build_options(given: dict[str, Any], names: Sequence[str]) -> BuildOptions:
    """Remove the options of a build from the arguments of a command and return them."""
    values = {name: given.pop(name) for name in names}
    # A repeatable option that is not given is None, and else a list.
    repeatable = {name for name, kind in get_type_hints(BuildOptions).items() if get_origin(kind) is tuple}
    return BuildOptions(**values | {name: tuple(values[name] or ()) for name in repeatable & values.keys()})


def _resolve(console: Console, flags: Mapping[str, str | None], fixed: Mapping[str, str], *, partial: bool) -> Settings:
    settings = resolve(flags, fixed=fixed, partial=partial)
    console.display = settings.progress
    for name, item in settings.explain().items():
        console.detail(f"{name} = {item['value'] or '(none)'}  [{item['from']}]")
    return settings


def _remembering(settings: Settings, *, keep: bool) -> AbstractContextManager[None]:
    from toolkit.base import digest  # loads hashlib and tempfile, which `toolkit --help` does not need

    return digest.caching(Path(settings.state), keep=keep)


@contextmanager
def _reporting(console: Console) -> Iterator[None]:
    try:
        yield
    except ToolkitError as error:
        raise _report(console, _attribute(error)) from None
    except KeyboardInterrupt:
        raise _report(console, _describe_interrupt()) from None
    except typer.Exit:
        raise
    except Exception as error:  # noqa: BLE001 - the last resort: whatever it is, it gets exit code 1
        if signals.is_raised():
            raise _report(console, _describe_interrupt()) from None
        if isinstance(error, OSError | ValueError) and (known := explain_path(error)):
            raise _report(console, known) from None
        traceback.print_exc()
        raise _report(console, ToolkitError(f"unexpected failure: {error!r}", remedy="please report it")) from None


def _report(console: Console, error: ToolkitError) -> typer.Exit:
    _name_cause(error)
    if not (isinstance(error, JobError) and error.reported):
        if error.exit_code != signals.INTERRUPTED:
            console.fail(str(error))
        elif not signals.is_told():  # the user asked for it, so it is no error
            output.say(f"{error.what}. {error.remedy}".rstrip(". ") + ".")
    if error.exit_code == signals.INTERRUPTED:
        signals.mark_told()
    console.close({"code": error.exit_code, "what": error.what, "why": error.why, "remedy": error.remedy})
    return typer.Exit(error.exit_code)


def _name_cause(error: ToolkitError) -> None:
    """Add to the remedy of an error the known failure that its message shows, and where that is explained."""
    if isinstance(error, UsageError | InterruptionError) or "toolkit diagnose" in error.remedy:
        return
    from toolkit import diagnosis  # only a failure needs it

    message = f"{error.what}\n{error.why}"
    error.remedy = f"{error.remedy}\n{diagnosis.name_cause(message)}".strip()


def _describe_interrupt() -> InterruptionError:
    return InterruptionError("interrupted", remedy="The same command goes on")


def _attribute(error: ToolkitError) -> ToolkitError:
    """Return an error, or the interrupt because of which it happened."""
    if not signals.is_raised() or error.exit_code == signals.INTERRUPTED:
        return error
    return InterruptionError("interrupted", why=error.what, remedy=error.remedy)
