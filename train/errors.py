"""Defines the errors of a job with the exit codes that ``toolkit`` documents; in an image there is no toolkit."""

import functools
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, ParamSpec


class TrainError(Exception):
    """A failure of a known kind: what failed, the reason if known, and what the user can do next."""

    exit_code = 1

    def __init__(self, what: str, *, why: str = "", remedy: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.why = why
        self.remedy = remedy

    def __str__(self) -> str:
        lines = [self.what]
        if self.why:
            lines.append(f"  why: {self.why}")
        if self.remedy:
            lines.append(f"  try: {self.remedy}")
        return "\n".join(lines)


class UsageError(TrainError):
    exit_code = 2


class PreflightError(TrainError):
    """This machine cannot run the job: disk, memory, permissions, or a run folder in use."""

    exit_code = 4


class CheckError(TrainError):
    """A check failed: a loss that is not a number, an export that disagrees with the model."""

    exit_code = 7


class IntegrityError(TrainError):
    """A file contradicts its known digest or another record."""

    exit_code = 8


class DataError(TrainError):
    exit_code = 9


class WorkerError(TrainError):
    """A worker of this run was lost, or did not come in time."""

    exit_code = 10


class InterruptionError(TrainError):
    exit_code = 130


_NO_MEMORY: Final = re.compile(
    r"(?:OOM when|[Oo]ut of memory|failed to allocate memory)[^\n]*?(?= \[Op:|$)", re.MULTILINE
)
"""What a ResourceExhaustedError of TensorFlow or XLA says if it is about memory."""


@contextmanager
def explaining_memory() -> Iterator[None]:
    """Turn the error of a job that gets no memory into a PreflightError. Other errors stay as they are."""
    try:
        yield
    except Exception as error:
        why = ""
        if isinstance(error, MemoryError):
            why = str(error) or "Python could not allocate what it needs"
        # TensorFlow's class is known by its name, because loading TensorFlow takes seconds.
        elif type(error).__name__ == "ResourceExhaustedError" and (found := _NO_MEMORY.search(str(error))):
            why = found[0]
        if not why:
            raise
        raise PreflightError(
            "the job ran out of memory",
            why=why,
            remedy="use --batch-size auto or a smaller one, --accumulate, or a smaller model",
        ) from error


Arguments = ParamSpec("Arguments")


def explain_errors(program: Callable[Arguments, int]) -> Callable[Arguments, int]:
    @functools.wraps(program)
    def run(*arguments: Arguments.args, **options: Arguments.kwargs) -> int:
        try:
            return program(*arguments, **options)
        except TrainError as error:
            print(f"error: {error}", file=sys.stderr)
            return error.exit_code
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
            return 130

    return run
