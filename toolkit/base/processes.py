import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from toolkit.base.errors import IntegrityError, PreflightError
from train.system import signals

LISTEN_SECONDS: Final = 0.5
"""The longest wait for commands before this program looks for interrupts again.

An interrupt that comes just as a wait begins does not end that wait.
"""

DISK_FULL = re.compile(
    r"(?i:no space left on device|disk quota exceeded|the disk is full)|You don't have enough free space in"
)
"""How the kernel and apt report a full disk."""

EXECUTOR_FULL = "wheel: the disk of the remote executor is full"
"""How the build's step says that a full disk is not the engine's."""

OTHER_BYTES = re.compile(
    r"(?i:hash mismatch)|digest mismatch|[Cc]hecksum was \S+ but wanted|DO NOT MATCH THE HASHES|Expected sha256"
)
"""How uv, pip, BuildKit, apt and Bazel report a download that is not the pinned one."""


def stop(process: subprocess.Popen[str], *, grace: float, first: signal.Signals = signal.SIGTERM) -> None:
    """Ask a process that leads its own session, and its children, to stop; kill them after ``grace`` seconds."""
    for signum, patience in ((first, grace), (signal.SIGKILL, None)):
        try:
            os.killpg(process.pid, signum)
            process.wait(timeout=patience)
        except ProcessLookupError:
            process.wait()
        except subprocess.TimeoutExpired:
            continue
        return


@contextmanager
def starting(
    argv: Sequence[str], stop: Callable[["subprocess.Popen[str]"], object], **options: Any
) -> Iterator["subprocess.Popen[str]"]:
    """Start a process in a session of its own. It is stopped if the block fails, as it does by an interrupt.

    In its own session it gets a Ctrl-C only from this program, and not also from the terminal.
    """
    started: list[subprocess.Popen[str]] = []
    try:
        with signals.deferring():  # an interrupt in between would leave the process
            started.append(subprocess.Popen(argv, text=True, start_new_session=True, **options))
        yield started[0]
    except BaseException:
        for process in started:
            stop(process)
        raise


def describe_full_disk(message: str) -> PreflightError:
    """Return the error of a full disk. ``message`` begins with a verb, as in ``filled up while installing``."""
    return PreflightError(f"the disk {message}", remedy="free space, or set TOOLKIT_STATE to a larger disk")


def describe_wrong_package(why: str) -> IntegrityError:
    return IntegrityError(
        "a downloaded package does not have the hash that the lock promises",
        why=why,
        remedy="do not install it: find out which mirror or proxy served it",
    )


def shell_code(returncode: int) -> int:
    """Return the exit code as a shell reports it: 128 + the number of a signal that ended the process."""
    return returncode if returncode >= 0 else 128 - returncode
