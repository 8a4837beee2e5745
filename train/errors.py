"""Defines the base of all errors, and those that a job raises: in an image there is no toolkit.

Each class is a kind of failure with its exit code, and a row of docs/exit-codes.md. ``toolkit.base.errors`` adds more.
"""

import os
import pwd
import re
import stat
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

LONGEST: Final = 2000
"""Characters that are shown of a line of an error: a name in it may have any length."""

_LINE: Final = re.compile(r"\n(?=\S)")
"""A further line, which is indented so that it does not look like a message of its own."""


def shorten(text: str) -> str:
    """Return text whose lines are cut after :data:`LONGEST` characters."""
    return "\n".join(line if len(line) <= LONGEST else f"{line[:LONGEST]}…" for line in text.split("\n"))


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


class PreflightError(ToolkitError):
    """This machine cannot do it now, for example because another process uses the folder of the run."""

    exit_code = 4
    meaning = "preflight failed: disk, memory, permissions or driver"


class CheckError(ToolkitError):
    """A check failed: a loss that is not a number, an export that disagrees with the model."""

    exit_code = 7
    meaning = "a check failed"


class IntegrityError(ToolkitError):
    """A file contradicts its digest, its signature or another record."""

    exit_code = 8
    meaning = "integrity: a hash or a signature does not match, or what a policy asks for is missing"


class DataError(ToolkitError):
    exit_code = 9
    meaning = "data set incomplete, unreadable or corrupt, or not to be had"


_COPY: Final = "give the folder of a local copy of the data set by --data-dir"


def explain_unreadable(path: Path, error: OSError, name: str = "") -> DataError:
    """Return the error of a path that cannot be read: where rights are missing, it names the owner and mode.

    `name` names the path in the message.
    """
    name = name or str(path)
    if not isinstance(error, PermissionError):
        return DataError(f"cannot read {name}", why=error.strerror or str(error))
    closed = next((parent for parent in reversed(path.absolute().parents) if not os.access(parent, os.X_OK)), path)
    status = closed.stat()
    owner, user = _name_user(status.st_uid), _name_user(os.geteuid())
    return DataError(
        f"cannot read {name}",
        why=f"{closed} belongs to {owner} and has mode {stat.S_IMODE(status.st_mode):04o}, and this job runs as {user}",
        remedy=f"let {user} read it (`chmod -R a+rX {closed}`, by {owner} or root), or give a copy that {user} owns",
    )


def require_there(path: Path, remedy: str, noun: str = "") -> None:
    """Raise a UsageError if nothing is at a path of the user. A path that this user may not look at passes.

    ``noun``: what it should be, with a space after it.
    """
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise UsageError(f"there is no {noun}{path}", remedy=remedy) from error
    except OSError:
        return


def require_folder(folder: Path) -> None:
    """Raise a UsageError unless the folder of a data set is there, and a DataError unless it can be listed."""
    require_there(folder, _COPY, "folder ")
    try:
        os.scandir(folder).close()
    except PermissionError as error:
        raise explain_unreadable(folder, error) from error
    except OSError as error:
        raise DataError(f"{folder} is no folder that can be listed", why=error.strerror or "", remedy=_COPY) from error


def _name_user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


class TooLargeError(DataError):
    """An image has more pixels than it may have."""


class WorkerError(ToolkitError):
    exit_code = 10
    meaning = "a worker of a training run was lost, or did not come"


class GpuError(ToolkitError):
    exit_code = 12
    meaning = "a GPU was asked for, and there is none that can be used"


class InterruptionError(ToolkitError):
    exit_code = 130
    meaning = "interrupted"


_NO_MEMORY: Final = re.compile(
    r"(?:OOM when|[Oo]ut of memory|failed to allocate memory)[^\n]*?(?= \[Op:|$)", re.MULTILINE
)
"""What a ResourceExhaustedError of TensorFlow or XLA says if it is about memory."""


_NODE: Final = re.compile(r"\{\{(?:function_)?node ([^}]+)\}\}|\[Op:(\w+)")
"""How an error of TensorFlow names the operation: a node of a graph, or an operation that ran by itself."""
_REPEATING: Final = ("UnimplementedError", "InvalidArgumentError", "NotFoundError", "FailedPreconditionError")
"""Errors of TensorFlow that an operation raises each time it gets the same input."""
_REPEATED: Final = re.compile(
    r"libdevice|INVALID_PTX|no kernel image|PTX compilation provider|DNN library|UNIMPLEMENTED|INVALID_ARGUMENT"
)
"""Words of other errors that come again: this machine lacks something."""
_PREAMBLE: Final = ("Graph execution error", "Detected at node", "File ", "<stack traces", "[[", "2 root error", "(0) ")


@contextmanager
def explaining_failures(report: Path) -> Iterator[None]:
    """Turn the errors of TensorFlow into one message: a PreflightError if the job gets no memory, else a ToolkitError.

    Its whole traceback goes into the file ``report``, as does that of an unexpected error, which stays as it is.
    """
    try:
        with _explaining_memory():
            yield
    except Exception as error:
        # TensorFlow's classes are known by their names, because loading TensorFlow takes seconds.
        kinds = {f"{kind.__module__}.{kind.__name__}" for kind in type(error).__mro__}
        if not any(kind.endswith(("errors_impl.OpError", "XlaRuntimeError")) for kind in kinds):
            if not isinstance(error, ToolkitError | OSError):  # such as a TensorFlow that cannot be imported
                _write_traceback(report)
            raise
        text = str(error)
        operation = next((match[1] or match[2] for match in _NODE.finditer(text)), "")
        lines = [line.strip() for line in text.splitlines()]
        message = next((line for line in lines if line and not line.startswith(_PREAMBLE)), type(error).__name__)
        place = _write_traceback(report)
        raise ToolkitError(
            f"TensorFlow failed{f' in the operation {operation}' if operation else ''}",
            why=f"{type(error).__name__}: {message}",
            remedy="; ".join([*([f"the whole traceback is in {place}"] if place else []), _advise(kinds, text)]),
        ) from error


def _advise(kinds: set[str], text: str) -> str:
    """Return what the user can do after an error of TensorFlow, of these classes and with this text."""
    if any(kind.endswith(_REPEATING) for kind in kinds) or _REPEATED.search(text):
        return "the same command would fail again: change what the message names"
    return "the same command goes on from the last checkpoint"


def _write_traceback(report: Path) -> str:
    """Write the traceback of the present error; return its place, or nothing if it cannot be written."""
    try:
        report.parent.mkdir(parents=True, exist_ok=True)
        report.write_text(traceback.format_exc(), encoding="utf-8")
    except OSError:
        traceback.print_exc()
        return ""
    return str(report)


@contextmanager
def _explaining_memory() -> Iterator[None]:
    """Turn the error of a job that gets no memory into a PreflightError. Other errors stay as they are."""
    try:
        yield
    except Exception as error:
        why = ""
        if isinstance(error, MemoryError):
            why = str(error) or "Python could not allocate what it needs"
        # TensorFlow's class is known by its name, because loading TensorFlow takes seconds.
        elif type(error).__name__ == "ResourceExhaustedError" and (match := _NO_MEMORY.search(str(error))):
            why = match[0]
        if not why:
            raise
        raise PreflightError(
            "the job ran out of memory",
            why=why,
            remedy="use --batch-size auto or a smaller one, --accumulate, or a smaller model",
        ) from error


@contextmanager
def explaining_packages() -> Iterator[None]:
    """Turn the error of a Python that lacks a package of the job into a PreflightError."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package in {"", "train"}:
            raise
        raise PreflightError(
            f"this Python has no package {package}",
            why=f"{sys.executable} is not that of an environment for training",
            remedy="`toolkit train` makes one and runs the job in it; or use the Python of one that is there: "
            ".toolkit/environment-*/venv/bin/python -m train",
        ) from error
