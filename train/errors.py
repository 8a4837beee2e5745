"""Defines the errors of a training job. Each class has the exit code that ``toolkit`` documents for it.

``toolkit.errors`` is not used, because this package runs alone in an image.
"""


class TrainError(Exception):
    """A known kind of failure: what failed, why if that is known, and what the user can do next."""

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
    """A file does not have its known digest."""

    exit_code = 8


class DataError(TrainError):
    exit_code = 9


class InterruptionError(TrainError):
    """The job was asked to stop; its state is saved."""

    exit_code = 130
