"""Where errors become messages and exit codes, once for all commands."""

import functools
import json
import signal
import sys
import traceback
from collections.abc import Callable
from typing import ParamSpec

import typer

from toolkit.console import Console
from toolkit.errors import InterruptionError, JobError, ToolkitError
from train.errors import TrainError

P = ParamSpec("P")


def guarded(command: Callable[P, None]) -> Callable[P, None]:
    """Run a command; a known failure becomes one message and its exit code, an unknown one a traceback and 1.

    With ``--json`` the failure is on standard output too, so that a pipeline need not parse prose.
    """

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        # `docker stop`, systemd and CI end a program by SIGTERM: it deserves the same clean way out as Ctrl-C.
        signal.signal(signal.SIGTERM, _interrupt)
        console = Console(json=bool(kwargs.get("json")))
        try:
            command(*args, **kwargs)
        except (ToolkitError, TrainError) as error:
            raise _report(console, error) from None
        except KeyboardInterrupt:
            stopped = InterruptionError("interrupted", remedy="run the same command again to go on")
            raise _report(console, stopped) from None
        except BrokenPipeError:
            # The reader of our output went away (`toolkit matrix | head`): nothing is wrong with us.
            sys.stderr.close()
            raise typer.Exit(0) from None
        except typer.Exit:
            raise
        except Exception as error:  # noqa: BLE001 - the last resort: whatever it is, it gets exit code 1
            traceback.print_exc()
            raise _report(console, ToolkitError(f"unexpected failure: {error!r}", remedy="please report it")) from None

    return run


def _report(console: Console, error: ToolkitError | TrainError) -> typer.Exit:
    if not (isinstance(error, JobError) and error.reported):
        console.fail(str(error))
    if console.json:
        facts = {"code": error.exit_code, "what": error.what, "why": error.why, "remedy": error.remedy}
        print(json.dumps({"error": facts}, indent=2))
    return typer.Exit(error.exit_code)


def _interrupt(_signal: int, _frame: object) -> None:
    raise KeyboardInterrupt
