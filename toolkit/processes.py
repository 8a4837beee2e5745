import os
import re
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, TextIO

from toolkit.errors import IntegrityError, PreflightError, UsageError
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


def share_cores(slots: int) -> list[list[int]]:
    """Return the cores of each slot: equal numbers, because the number of threads can decide the last bits of a run."""
    cores = sorted(os.sched_getaffinity(0))
    share = len(cores) // slots
    if not share:
        raise UsageError(f"--slots {slots} is more than the {len(cores)} cores of this machine", remedy="give fewer")
    return [cores[slot * share : (slot + 1) * share] for slot in range(slots)]


@dataclass(frozen=True, kw_only=True)
class LoggedCommand:
    argv: tuple[str, ...]
    log: Path  # gets its output


@dataclass
class CommandPool:
    """Runs commands, some at a time, each on the cores of its slot and in a session of its own."""

    commands: Mapping[int, LoggedCommand]
    variables: Mapping[str, str]  # that the commands get besides those of this program
    lock: int  # descriptor of a lock that the commands inherit
    grace: float  # seconds between asking a command to stop and killing it
    begin: Callable[[int, Path], None]  # told of each start, and of its log; one at a time
    end: Callable[[int, int], None]  # told of each end, and of its exit code; one at a time
    _running: list["subprocess.Popen[str]"] = field(default_factory=list)
    _door: threading.Lock = field(default_factory=threading.Lock)
    _stopped: bool = False

    def run(self, cores: Sequence[Sequence[int]]) -> dict[int, int]:
        """Run the commands in a slot for each set of cores; return their exit codes. An interrupt stops them all.

        Raises PreflightError if a log cannot be written.
        """
        queue, codes = iter(self.commands), dict[int, int]()

        def fill(mask: Sequence[int]) -> None:
            os.sched_setaffinity(0, mask)  # of this thread; what it starts inherits the mask
            while not self._stopped and (number := next(queue, None)) is not None:
                codes[number] = self._run(number)

        with ThreadPoolExecutor(len(cores)) as pool:
            try:
                slots = {pool.submit(fill, mask) for mask in cores}
                while slots:
                    done, slots = wait(slots, timeout=LISTEN_SECONDS, return_when=FIRST_COMPLETED)
                    for slot in done:
                        slot.result()
            except BaseException:
                self._stop()
                raise
        return codes

    def _run(self, number: int) -> int:
        command = self.commands[number]
        with _open(command.log) as stream:
            with self._door:
                if self._stopped:
                    return 128 + signal.SIGTERM
                process = subprocess.Popen(
                    command.argv,
                    env={**os.environ, **self.variables},
                    stdin=subprocess.DEVNULL,
                    stdout=stream,
                    stderr=subprocess.STDOUT,
                    text=True,
                    start_new_session=True,
                    pass_fds=[self.lock],
                )
                self._running.append(process)
                self.begin(number, command.log)
            code = shell_code(process.wait())
        with self._door:
            self.end(number, code)
        return code

    def _stop(self) -> None:
        with self._door:
            self._stopped = True
        running = [process for process in self._running if process.poll() is None]
        if running:
            with ThreadPoolExecutor(len(running)) as pool:
                list(pool.map(partial(stop, grace=self.grace), running))


def _open(log: Path) -> TextIO:
    try:
        return log.open("w")
    except OSError as error:
        raise PreflightError(
            f"cannot write {log}", why=error.strerror or str(error), remedy="free space, or choose another folder"
        ) from error
