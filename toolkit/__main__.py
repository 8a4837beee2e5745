import sys

from train.system import keyboard


def main() -> None:
    keyboard.settle()
    # Imported here so that a Ctrl-C during the import prints no traceback.
    from train.system import signals

    signals.lead(_run, _report_interrupt)


def _run() -> int:
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show a character gets a question mark, not a traceback.
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    # Imported here so that a signal during the import is handled too.
    from toolkit import programs
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
    from toolkit.console import Console
    from train.cli import explain_usage

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
