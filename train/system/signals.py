"""Ends a program by a signal: SIGINT, SIGTERM or SIGHUP. Both programs and all commands of the job end in this way.

A signal is recorded first, and then raised as an :class:`Interrupt` in the main thread. The exception can get lost:
Python only prints what is raised in the callback of a weak reference, and libraries replace it by exceptions of their
own. The record stays. :func:`run` ends with exit code 130 once an interrupt was raised, whatever became of the
exception. What Python only printed is raised again a moment later, and :func:`check` raises it again between two pieces
of work.

Once there is work to save, the first signal is recorded only, and the program asks for it after each step. A second one
is raised, but not if all are SIGTERM: Slurm repeats that one when it preempts a job, and ends by SIGKILL. A signal that
was ignored when the program started stays ignored, as under nohup.

The module loads little, because a program listens before it loads anything else.
"""

import _thread
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from train.system import keyboard

INTERRUPTED = 130
"""The exit code of a program that a signal ended."""

NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

AGAIN_SECONDS = 0.01
"""How long a callback gets to end before an interrupt that was lost in it is raised again."""

LONGEST_SECONDS = 1.0
"""How long :func:`listen` waits at its end for a signal that is sent again. A library may have set its own handler."""

_active: "StopSignal | None" = None


class Interrupt(KeyboardInterrupt):
    """A signal asks this program to end.

    It has a class of its own, because Python ends by SIGINT itself after a plain KeyboardInterrupt has left exec().
    """


class StopSignal:
    """The signal to stop that this program has received. A call returns its name, or an empty text."""

    def __init__(self) -> None:
        self.received: list[int] = []
        self.heard = ""  # the name of a signal that another worker has received
        self.raised = False  # whether it was raised as an Interrupt
        self.told = False  # whether the user was told that the program is interrupted
        self.saving = False
        self.deferring = 0  # how many blocks defer it
        self.deferred = False
        self.lost = False  # whether Python has only printed the Interrupt, which is to be raised again

    def __call__(self) -> str:
        return signal.Signals(self.received[0]).name if self.received else self.heard

    @property
    def number(self) -> int:
        """The number of the signal; 0 if there was none."""
        return self.received[0] if self.received else 0

    def begin_saving(self) -> None:
        """From now on, let the first signal wait for the end of a step, because there is work to save."""
        self.saving = True

    def receive(self, number: int, frame: FrameType | None) -> None:
        """Record a signal. Raises Interrupt unless the signal can wait or no program is running."""
        again, self.lost = self.lost, False
        if not again:
            self.received.append(number)
        first = len(self.received) == 1
        if not again and ((self.saving and (first or self.is_repeated)) or (self.deferring and first)):
            self.deferred = not self.saving
            if self.saving:  # not by `print`, whose lock the interrupted code may hold
                with suppress(OSError):
                    os.write(2, b"\nstopping after this step, to save the state\n")
        elif _is_inside(frame):
            self.raised, self.deferred = True, False
            raise Interrupt

    @property
    def is_repeated(self) -> bool:
        """Whether every signal was SIGTERM."""
        return {*self.received} == {signal.SIGTERM}

    def find_lost(self, unraisable: "sys.UnraisableHookArgs") -> bool:
        """Return whether Python is about to print an Interrupt in place of raising it. It is then raised again."""
        if not (self.raised and _comes_from_interrupt(unraisable.exc_value)):
            return False
        self.lost = True
        try:
            # Not by `threading`, whose locks the interrupted code may hold.
            _thread.start_new_thread(self._raise_again, ())
        except RuntimeError:  # no thread can be started: the record is left
            self.lost = False
        return True

    def _raise_again(self) -> None:
        time.sleep(AGAIN_SECONDS)
        if self.lost:
            signal.pthread_kill(threading.main_thread().ident or 0, self.received[-1])

    def wait_for_lost(self) -> None:
        """Wait until a signal that is sent again has come. It must not meet the handlers of before."""
        limit = time.monotonic() + LONGEST_SECONDS
        while self.lost and time.monotonic() < limit:
            time.sleep(AGAIN_SECONDS)
        self.lost = False


def _comes_from_interrupt(error: BaseException | None) -> bool:
    while error and not isinstance(error, Interrupt):
        error = error.__cause__ or error.__context__
    return error is not None


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _is_inside(frame: FrameType | None) -> bool:
    """Return whether a frame is that of a program that `run` runs. Elsewhere, nothing would catch an Interrupt."""
    while frame and frame.f_code is not _enter.__code__:
        frame = frame.f_back
    return frame is not None


@contextmanager
def listen() -> Iterator[StopSignal]:
    """Record signals while the block runs. A block inside of another one has the same record."""
    global _active
    if not _is_main_thread():  # which alone receives signals
        yield StopSignal()
        return
    if _active:
        saving = _active.saving
        try:
            yield _active
        finally:
            _active.saving = saving
        return
    stop = StopSignal()
    hooks = sys.unraisablehook, threading.excepthook
    # Python cannot set a handler again that it has not set, so such a one is left alone.
    before = {number: handler for number in NUMBERS if (handler := signal.getsignal(number)) is not None}

    # What fails after an interrupt may fail because of it: a generator that was left half-way, or a thread.
    def hook(unraisable: "sys.UnraisableHookArgs", /) -> None:
        if not stop.find_lost(unraisable) and not stop.raised:
            hooks[0](unraisable)

    def hook_thread(ended: "threading.ExceptHookArgs", /) -> object:
        return None if stop.raised else hooks[1](ended)

    try:
        _active, sys.unraisablehook, threading.excepthook = stop, hook, hook_thread
        for number, handler in before.items():
            if handler is not signal.SIG_IGN:
                signal.signal(number, stop.receive)
        yield stop
    finally:
        stop.wait_for_lost()
        _active, (sys.unraisablehook, threading.excepthook) = None, hooks
        for number, handler in reversed(before.items()):  # that of SIGINT, which may raise at once, comes last
            signal.signal(number, handler)


def say_interrupted() -> None:
    with suppress(OSError):  # the reader is gone
        sys.stderr.write("interrupted\n")
        sys.stderr.flush()


def run(program: Callable[[], int], tell: Callable[[], object] = say_interrupted) -> int:
    """Run a program, and return its exit code: 130 after an Interrupt, whatever the program made of it.

    `tell` says that the program is interrupted, unless it has said so itself and called :func:`mark_told`.
    """
    with listen() as stop:
        code = 1
        try:
            code = _enter(program, stop)
        except KeyboardInterrupt:
            stop.raised = True
        except (Exception, SystemExit):
            if not stop.raised:
                raise
        if not stop.raised:
            return code
        if not stop.told:
            stop.told = True
            tell()
        return INTERRUPTED


def _enter(program: Callable[[], int], stop: StopSignal) -> int:
    """Run a program. Signals are raised inside of this function alone; `receive` knows it by its code."""
    if stop.raised or (stop.received and not stop.saving):
        raise Interrupt
    return program()


def lead(
    program: Callable[[], int],
    tell: Callable[[], object] = say_interrupted,
    end: Callable[[], object] = lambda: None,
) -> None:
    """Run the program that this process is for, then `end`, and leave the process with the program's exit code.

    Before and after, a signal ends the process by itself, without a traceback.
    """
    keyboard.settle()
    code: str | int | None = 1
    with listen():
        try:
            code = run(program, tell)
        except SystemExit as ended:
            code = ended.code
        except Exception:  # noqa: BLE001 - as the interpreter does
            sys.excepthook(*sys.exc_info())
        end()
    sys.exit(code)


def is_raised() -> bool:
    """Return whether a signal has interrupted the program. What fails from then on may fail because of it."""
    return _active is not None and _active.raised


def check() -> None:
    """Raise an Interrupt again that something has swallowed."""
    if is_raised():
        raise Interrupt


def mark_told() -> None:
    """Note that the user was told of the interrupt."""
    if _active:
        _active.told = True


def is_told() -> bool:
    """Return whether the user was told of the interrupt."""
    return _active is not None and _active.told


def answer() -> None:
    """Note that the program has done what a signal asked for, for example that a server has ended."""
    if _active:
        _active.received.clear()
        _active.raised = False


@contextmanager
def deferring() -> Iterator[None]:
    """Raise the first signal when the block has ended, and a second one at once.

    What a request makes on a server exists only when the request is answered. An interrupt in between would leave it.
    """
    stop = _active
    if stop is None or not _is_main_thread():
        yield
        return
    stop.deferring += 1
    try:
        yield
    finally:
        stop.deferring -= 1
        if stop.deferred and not stop.deferring:
            stop.deferred = False
            stop.raised = True
            raise Interrupt
