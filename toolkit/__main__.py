import errno
import os
import sys
from typing import NoReturn

from train.system import keyboard

_PREFLIGHT = 4
"""The exit code of PreflightError, which is not loaded yet where it may be impossible to load anything."""


def main() -> None:
    keyboard.settle()
    if not _open_streams():
        _refuse("standard output is closed", "redirect it: >/dev/null")
    try:
        _lead()
    except OSError as error:
        if error.errno not in {errno.EMFILE, errno.ENFILE}:
            raise
        _refuse("too many files are open", "raise the limit: ulimit -n 1024")


def _open_streams() -> bool:
    """Put an empty file in place of each closed stream, so that no other file gets its number.

    Return whether standard output was open.
    """
    closed = []
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            closed.append(number)
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free
    if 2 in closed:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115 - for as long as the program runs
    return 1 not in closed


def _refuse(what: str, remedy: str) -> NoReturn:
    os.write(2, f"error: {what}\n  try: {remedy}\n".encode())
    sys.exit(_PREFLIGHT)


def _lead() -> None:
    # Imported here so that a Ctrl-C during the import prints no traceback.
    from train.system import signals

    signals.lead(_run, _report_interrupt)


def _run() -> int:
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show a character gets a question mark, not a traceback.
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    # Imported here so that a signal during the import is handled too.
    from toolkit.base import programs
    from toolkit.cli import app
    from train.system import signals

    programs.require_absolute_path()
    try:
        code = app(prog_name="toolkit", standalone_mode=False)
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise
        code = _report_usage(error)
    signals.check()  # Typer turns an interrupt into an exit code
    return int(code or 0)


def _report_usage(error: Exception) -> int:
    """Print a usage error of Typer; with ``--json`` also as JSON. Return the exit code."""
    from toolkit.base.console import Console
    from train.command_line import explain_usage

    problem = explain_usage(error, "toolkit")
    console = Console(json="--json" in sys.argv, verbosity=0)
    console.fail(str(problem))
    console.close({"code": problem.exit_code, "what": problem.what, "why": problem.why, "remedy": problem.remedy})
    return problem.exit_code


def _report_interrupt() -> None:
    """Say that a signal came before the command began, or after its end. A command reports its interrupts itself."""
    from train.system import signals

    signals.say_interrupted()
    _report_as_json(signals.INTERRUPTED, "interrupted", "The same command goes on")


def _report_as_json(code: int, message: str, remedy: str) -> None:
    if "--json" in sys.argv:
        from train.system.output import show_json

        show_json({"error": {"code": code, "what": message, "why": "", "remedy": remedy}}, indent=2)


if __name__ == "__main__":
    main()
