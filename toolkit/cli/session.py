"""What every command has: shared options, settings, a console, and one place where errors become exit codes.

A command declares its own options and names the shared ones; :func:`command` adds those to its signature, which is what
Typer reads, and hands the result over as a :class:`Session`.
"""

import functools
import inspect
import signal
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import typer

from toolkit.cli.options import OUTPUT, SETTINGS
from toolkit.console import Console
from toolkit.errors import InterruptionError, JobError, ToolkitError
from toolkit.settings import Settings, resolve
from train.errors import TrainError


@dataclass(frozen=True)
class Session:
    """One run of a command: where it talks to, and what it is to do."""

    console: Console
    settings: Settings


def command(*shared: str, **fixed: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make a function with a first parameter ``session`` a command.

    Args:
        shared: names of settings that become options of the command.
        fixed: settings that the command decides itself.
    """

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(function, eval_str=True)
        own = [parameter for name, parameter in signature.parameters.items() if name != "session"]
        common = [_make_parameter(name, SETTINGS[name], None) for name in shared]
        common += [_make_parameter(name, annotation, False) for name, annotation in OUTPUT.items()]

        @functools.wraps(function)
        def run(**given: Any) -> None:
            output = {name: given.pop(name) for name in OUTPUT}
            flags = {name: given.pop(name) for name in shared}
            console = Console(json=output["json"], verbosity=-1 if output["quiet"] else int(output["verbose"]))
            with _reporting(console):
                function(Session(console, _resolve(console, {**flags, **fixed})), **given)
                console.close()

        run.__signature__ = inspect.Signature([*own, *common])  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in [*own, *common]}
        return run

    return decorate


def _make_parameter(name: str, annotation: object, default: object) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _resolve(console: Console, flags: Mapping[str, str | None]) -> Settings:
    settings = resolve(flags)
    for name, item in settings.describe().items():
        console.detail(f"{name} = {item['value'] or '(none)'}  [{item['from']}]")
    return settings


@contextmanager
def _reporting(console: Console) -> Iterator[None]:
    """A known failure becomes one message and its exit code, an unknown one a traceback and 1.

    With ``--json`` the failure is on standard output too, so that a pipeline need not parse prose.
    """
    # systemd and CI end a program by SIGTERM, a closed terminal by SIGHUP: they deserve Ctrl-C's clean way out.
    # A signal that is ignored stays so: that is what nohup is for.
    for asked in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(asked) is not signal.SIG_IGN:
            signal.signal(asked, _interrupt)
    try:
        yield
    except (ToolkitError, TrainError) as error:
        raise _report(console, error) from None
    except KeyboardInterrupt:
        stopped = InterruptionError("interrupted", remedy="run the same command again to go on")
        raise _report(console, stopped) from None
    except typer.Exit:
        raise
    except Exception as error:  # noqa: BLE001 - the last resort: whatever it is, it gets exit code 1
        traceback.print_exc()
        raise _report(console, ToolkitError(f"unexpected failure: {error!r}", remedy="please report it")) from None


def _report(console: Console, error: ToolkitError | TrainError) -> typer.Exit:
    if not (isinstance(error, JobError) and error.reported):
        console.fail(str(error))
    console.close({"code": error.exit_code, "what": error.what, "why": error.why, "remedy": error.remedy})
    return typer.Exit(error.exit_code)


def _interrupt(_signal: int, _frame: object) -> None:
    raise KeyboardInterrupt
