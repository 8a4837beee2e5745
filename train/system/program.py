"""Runs a program of the job, so that an error is one message and every program ends by signals in the same way."""

import functools
from collections.abc import Callable
from typing import ParamSpec

from train.errors import InterruptionError, ToolkitError, explaining_packages
from train.system import output, signals
from train.system.files import explain_path

Arguments = ParamSpec("Arguments")


def explain(command: Callable[[], int], show: Callable[[str], object] = output.say) -> int:
    """Run a command, show its error or that it is interrupted, and return its exit code."""

    def attempt() -> int:
        try:
            with explaining_packages():
                return command()
        except InterruptionError as error:  # the user asked for it, so it is no error
            signals.mark_told()
            show(f"{error.what}. {error.remedy}".rstrip(". ") + ".")
            return error.exit_code
        except (ToolkitError, OSError, ValueError) as error:
            signals.check()  # a library may have failed because of the interrupt
            known_error = error if isinstance(error, ToolkitError) else explain_path(error)
            if known_error is None:
                raise
            show(f"error: {known_error}")
            return known_error.exit_code

    return signals.run(attempt, lambda: show("interrupted"))


def explain_errors(program: Callable[Arguments, int]) -> Callable[Arguments, int]:
    """Make a program show its errors, and return their exit codes."""

    @functools.wraps(program)
    def run(*arguments: Arguments.args, **options: Arguments.kwargs) -> int:
        return explain(lambda: program(*arguments, **options))

    return run
