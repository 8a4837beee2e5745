"""Defines the errors. Each class is a kind of failure with its exit code, and a row of docs/exit-codes.md."""

import re
import signal
from typing import Final

from train.errors import shorten

_LINE: Final = re.compile(r"\n(?=\S)")
"""A further line, which is indented so that it does not look like a message of its own."""


class ToolkitError(Exception):
    """A failure of a known kind: what failed in one sentence, why if that is known, and what the user can do next."""

    exit_code = 1
    meaning = "unexpected failure"

    def __init__(self, what: str, *, why: str = "", remedy: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.why = why
        self.remedy = remedy

    def __str__(self) -> str:
        lines = [shorten(self.what.replace("\n", "\\n"))]  # a name in it may have any character
        if self.why:
            lines.append(f"  why: {shorten(self.why)}")
        if self.remedy:
            lines.append(f"  try: {shorten(self.remedy)}")
        return "\n".join(_LINE.sub("\n    ", line) for line in lines)


class UsageError(ToolkitError):
    exit_code = 2
    meaning = "wrong usage: an option, an argument or toolkit.yaml; or there is no such file or folder"


class UnsupportedError(ToolkitError):
    exit_code = 3
    meaning = "unsupported combination of versions"


class PreflightError(ToolkitError):
    exit_code = 4
    meaning = "preflight failed: disk, memory, permissions or driver"


class EngineError(ToolkitError):
    exit_code = 5
    meaning = "container engine unreachable"


class BuildError(ToolkitError):
    exit_code = 6
    meaning = "build failed"


class CheckError(ToolkitError):
    exit_code = 7
    meaning = "a check failed"


class IntegrityError(ToolkitError):
    """A file is not what its digest or its signature says."""

    exit_code = 8
    meaning = "integrity: a hash or a signature does not match, or what a policy asks for is missing"


class DataError(ToolkitError):
    exit_code = 9
    meaning = "data set incomplete, unreadable or corrupt, or not to be had"


class WorkerError(ToolkitError):
    exit_code = 10
    meaning = "a worker of a training run was lost, or did not come"


class RegistryError(ToolkitError):
    exit_code = 11
    meaning = "a registry of wheels does not answer, or refuses"


class GpuError(ToolkitError):
    exit_code = 12
    meaning = "a GPU was asked for, and there is none that can be used"


class InterruptionError(ToolkitError):
    exit_code = 130
    meaning = "interrupted"


_BY_SIGNAL: dict[int, tuple[str, str]] = {
    signal.SIGKILL: ("it was killed, most often because memory ran out", "choose a smaller --batch-size"),
    signal.SIGABRT: (
        "TensorFlow, XLA or a library ended it, and said why in the last lines above",
        "look for these among the known failures of `toolkit matrix`",
    ),
}
"""Why a signal ended a job, and what to try."""


class JobError(ToolkitError):
    """A job failed. Its exit code becomes that of the program. ``reported``: the job has printed the reason itself."""

    meaning = "as the job's own exit code"

    def __init__(self, title: str, exit_code: int, *, why: str = "") -> None:
        reason, remedy = _BY_SIGNAL.get(exit_code - 128, ("", ""))
        super().__init__(f"{title} failed with exit code {exit_code}", why=why or reason, remedy=remedy)
        self.exit_code = exit_code
        self.reported = not why and exit_code in list_exit_codes()


def list_exit_codes() -> dict[int, str]:
    kinds: list[type[ToolkitError]] = [ToolkitError, *ToolkitError.__subclasses__()]
    return {0: "success", **{kind.exit_code: kind.meaning for kind in kinds if kind is not JobError}}
