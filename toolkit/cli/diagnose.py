import stat
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from toolkit.base.errors import PreflightError, UnknownFailureError, UsageError
from toolkit.cli.command import Session, command

_STANDARD_INPUT = "-"


@command()
def diagnose(
    session: Session,
    files: Annotated[
        list[str] | None, typer.Argument(metavar="[FILE]...", help="Logs; `-` or none reads standard input.")
    ] = None,
    name: Annotated[str | None, typer.Option("--id", metavar="ID", help="Show what is known of one failure.")] = None,
    last: Annotated[
        bool, typer.Option("--last", help="Read the newest log that the toolkit wrote in this clone.")
    ] = False,
) -> None:
    """Say what ended a program, by its log, and what to do. Reads logs of Bazel, pip, Docker, TensorFlow and notebooks.

    Ends with 0 if a known failure explains the log or it has none, and with 13 if it has errors that are not known.
    """
    from toolkit.diagnosis import load

    files = files or []
    if sum([bool(files), name is not None, last]) > 1:
        raise UsageError("FILE, --id and --last exclude each other", remedy="give one of them")
    if name is not None:
        row = load().find(name)
        session.console.result(row.to_json(), row.render(), prose=True)
        return
    if last:
        files = [str(_find_last(Path(session.settings.state)))]
        session.console.say(f"reading {files[0]}")
    _read(session, files or [_STANDARD_INPUT])


def _read(session: Session, files: list[str]) -> None:
    from toolkit import diagnosis

    # Standard input is None where the caller has closed it.
    if _STANDARD_INPUT in files and (sys.stdin is None or sys.stdin.isatty()):
        raise UsageError("there is no log to read", remedy="toolkit diagnose FILE, or COMMAND 2>&1 | toolkit diagnose")
    with ExitStack() as stack:
        try:
            result = diagnosis.diagnose(_open(files, stack))
        except OSError as error:  # a disk, or a folder as standard input
            raise PreflightError("cannot read the log", why=error.strerror or str(error)) from error
    session.console.result(result.to_json(), result.render(), prose=True)
    if result.unknown:
        raise UnknownFailureError(
            "the log has errors, and none of the known failures explains them",
            remedy="search for the first lines that are shown; CONTRIBUTING.md says how a failure is added",
        )


def _open(files: list[str], stack: ExitStack) -> Iterator[tuple[str, BinaryIO]]:
    for file in files:
        shown = file if len(files) > 1 else ""
        if file == _STANDARD_INPUT:
            yield shown, sys.stdin.buffer
            continue
        try:
            stream = Path(file).open("rb")  # noqa: SIM115 - the stack closes it
        except FileNotFoundError as error:
            raise UsageError(f"there is no file {file}", remedy="give the file of a log, or - for input") from error
        except IsADirectoryError as error:
            raise UsageError(f"{file} is a folder", remedy="give the files of the logs in it") from error
        except OSError as error:
            denied = isinstance(error, PermissionError)
            remedy = f"read it as its owner: sudo cat {file} | toolkit diagnose" if denied else ""
            raise PreflightError(f"cannot read {file}", why=error.strerror or str(error), remedy=remedy) from error
        yield shown, stack.enter_context(stream)


def _find_last(state: Path) -> Path:
    """Return the newest log below the state folder, or traceback of a run. Raises UsageError if there is none."""
    places = [*state.glob("*/*.log"), *state.glob("*/*/*.log"), *Path("runs").glob("*/failure*.txt")]
    logs = []
    for path in places:
        with suppress(OSError):  # another command may remove it meanwhile
            status = path.stat()
            logs += [(status.st_mtime_ns, path)] if stat.S_ISREG(status.st_mode) else []
    if not logs:
        raise UsageError(f"there is no log in {state} or runs", remedy="name the file of a log")
    return max(logs)[1]
