"""Adds the errors of the toolkit to those of a job, which both programs share.

Each class is a kind of failure with its exit code, and a row of docs/exit-codes.md.
"""

import signal

from train.errors import (
    CheckError,
    DataError,
    GpuError,
    IntegrityError,
    InterruptionError,
    PreflightError,
    ToolkitError,
    UsageError,
    WorkerError,
)

__all__ = [
    "BuildError",
    "CheckError",
    "DataError",
    "EngineError",
    "GpuError",
    "IntegrityError",
    "InterruptionError",
    "JobError",
    "PreflightError",
    "RegistryError",
    "ToolkitError",
    "UnknownFailureError",
    "UnsupportedError",
    "UsageError",
    "WorkerError",
    "list_exit_codes",
    "refer",
]


class UnsupportedError(ToolkitError):
    exit_code = 3
    meaning = "unsupported combination of versions"


class EngineError(ToolkitError):
    exit_code = 5
    meaning = "container engine unreachable"


class BuildError(ToolkitError):
    exit_code = 6
    meaning = "build failed"


class RegistryError(ToolkitError):
    exit_code = 11
    meaning = "a registry of wheels does not answer, or refuses"


class UnknownFailureError(ToolkitError):
    """A log has errors, and no failure that is known explains them."""

    exit_code = 13
    meaning = "`toolkit diagnose`: the log has errors, and none of the known failures explains them"


def refer(failure: str) -> str:
    """Name the command that explains a known failure, by its id in the table of failures."""
    return f"see `toolkit diagnose --id {failure}`"


_BY_SIGNAL: dict[int, tuple[str, str]] = {
    signal.SIGILL: (
        "the processor lacks an instruction that TensorFlow uses, most often AVX",
        f"`toolkit smoke` names it; {refer('no-avx')}",
    ),
    signal.SIGKILL: (
        "it was killed, most often because memory ran out",
        f"choose a smaller --batch-size; {refer('program-killed')}",
    ),
    signal.SIGSEGV: (
        "a library crashed, and the last lines above are the only trace of it",
        f"`toolkit smoke` tells whether TensorFlow alone works; {refer('segmentation-fault')}",
    ),
    signal.SIGABRT: (
        "TensorFlow, XLA or a library ended it, and said why in the last lines above",
        "give these lines to `toolkit diagnose`, which looks for them among the known failures",
    ),
}
"""Why a signal ended a job, and what to try."""


class JobError(ToolkitError):
    """A job failed. Its exit code becomes that of the program. ``reported``: the job has printed the reason itself."""

    meaning = "as the job's own exit code"

    def __init__(self, title: str, exit_code: int, *, why: str = "", remedy: str = "") -> None:
        reason, advice = _BY_SIGNAL.get(exit_code - 128, ("", ""))
        super().__init__(f"{title} failed with exit code {exit_code}", why=why or reason, remedy=remedy or advice)
        self.exit_code = exit_code
        self.reported = not why and exit_code in list_exit_codes()


def list_exit_codes() -> dict[int, str]:
    kinds: list[type[ToolkitError]] = [ToolkitError, *ToolkitError.__subclasses__()]
    return {0: "success", **{kind.exit_code: kind.meaning for kind in kinds if kind is not JobError}}
