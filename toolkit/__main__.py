import signal
import sys


def main() -> None:
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show a character gets a question mark, not a traceback.
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    try:
        # Imported here so that a Ctrl-C during the import is handled too.
        from toolkit.cli import app

        code = app(prog_name="toolkit", standalone_mode=False)
    except KeyboardInterrupt:
        code = 130
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise
        code = _report_usage(error)
    if code == 130:
        # After an interrupt inside exec(), which makes classes, Python ends by SIGINT itself, unless that is blocked.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    sys.exit(code)


def _report_usage(error: Exception) -> int:
    """Print a usage error of Typer; with ``--json`` also as JSON. Return the exit code."""
    from toolkit.console import Console
    from train.cli import explain_usage

    found = explain_usage(error, "toolkit")
    console = Console(json="--json" in sys.argv, verbosity=0)
    console.fail(str(found))
    console.close({"code": found.exit_code, "what": found.what, "why": found.why, "remedy": found.remedy})
    return found.exit_code


if __name__ == "__main__":
    main()
