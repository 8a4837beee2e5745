"""What can go wrong in training: one class a kind of failure, each with the exit code that ``toolkit`` documents too.

The codes are those of ``toolkit.errors``; the classes are not shared, because this package runs alone in an image.
"""


class TrainError(Exception):
    """A failure that we know.

    Args:
        what: the failure in one sentence.
        why: the cause, when it is known.
        remedy: what the user can do next.
    """

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
    """An option or argument is wrong."""

    exit_code = 2


class PreflightError(TrainError):
    """This machine cannot hold the job: disk, memory, permissions, or a run folder in use."""

    exit_code = 4


class CheckError(TrainError):
    """A check found something wrong: a loss that is no number, an export that disagrees with the model."""

    exit_code = 7


class IntegrityError(TrainError):
    """Bytes are not the bytes that were promised."""

    exit_code = 8


class DataError(TrainError):
    """A data set is missing, unreadable, or not what it says it is."""

    exit_code = 9


class InterruptionError(TrainError):
    """The user, or the system, asked us to stop; the state is saved."""

    exit_code = 130
