"""Sends a signal to a program at one of its moments: the calls and returns of functions, counted from its start.

A moment chosen at random hits code where a program spends no time, which a kill after random seconds never does.
"""

import mmap
import os
import random
import signal
import struct
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from tests.loaded import become

NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
DEADLY = (*NUMBERS, signal.SIGKILL)
MOMENT, SIGNAL, COUNTED = "INTERRUPTED_AT", "INTERRUPTED_BY", "INTERRUPTED_COUNT"

ENDED = {130, *(-number for number in DEADLY)}
"""Exit codes of a program that a signal ended."""

RIGHT = {"whole", "129", "130", "137", "143"}
"""How a program may end, see `Ended.judge`."""


class Injection:
    """Counts the moments of a program, and sends it a signal at one of them; 0 for none."""

    def __init__(self, moment: int, number: int) -> None:
        self.moment, self.number, self.count = moment, number, 0

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        self.count += 1
        if self.count == self.moment:
            os.kill(os.getpid(), self.number)

    def run(self, main: Callable[[], object]) -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # before it listens, Python itself would print a traceback
        sys.setprofile(self)
        try:
            main()
        finally:
            sys.setprofile(None)


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    error: str
    count: int  # moments, if there was no signal

    def judge(self, *, whole: bool) -> str:
        """Return how the program ended: by which exit code, with whole work, or with what is wrong."""
        wrong = [word for word in ("Traceback", "Exception ignored", "Fatal") if word in self.error]
        if wrong:
            return f"{wrong[0]} ({self.code})"
        if self.code in ENDED:
            return str(self.code if self.code > 0 else 128 - self.code)
        return "whole" if self.code == 0 and whole else f"exit code {self.code}"


def fork(
    main: Callable[[], object], argv: Sequence[str], folder: Path, variables: dict[str, str], moment: int, number: int
) -> Ended:
    """Run a program in a forked child, and send it a signal at a moment."""
    memory = mmap.mmap(-1, 8)
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as error:
        child = os.fork()
        if child == 0:
            injection = Injection(moment, number)

            def start() -> None:
                try:
                    injection.run(main)
                finally:
                    memory[:] = struct.pack("q", injection.count)

            become(start, argv, folder, variables, {1: out.fileno(), 2: error.fileno()})
        _, status = os.waitpid(child, 0)
        out.seek(0)
        error.seek(0)
        (count,) = struct.unpack("q", memory[:])
        return Ended(os.waitstatus_to_exitcode(status), out.read(), error.read(), count)


def _judge(ended: Ended, moment: int, moments: int, number: int, *, whole: bool) -> str:
    verdict = ended.judge(whole=whole)
    if verdict not in RIGHT:
        print(f"{signal.Signals(number).name} at {moment} of {moments}: {verdict}\n{ended.out}\n{ended.error}")
    return verdict


def sweep(
    count: int,
    moments: int,
    run: Callable[[int, int], Ended],
    is_whole: Callable[[Ended], bool],
    numbers: Sequence[signal.Signals] = NUMBERS,
) -> Counter[str]:
    """Interrupt a program at moments that are chosen at random, and count how it ended. What is wrong is printed."""
    generator, found = random.Random(0), Counter[str]()  # noqa: S311 - nothing is secret
    for _ in range(count):
        moment, number = generator.randint(1, moments), generator.choice(numbers)
        ended = run(moment, number)
        found[_judge(ended, moment, moments, number, whole=is_whole(ended))] += 1
    return found


def main() -> None:
    """Run the training job with the signal that variables name, and write its count of moments into a file."""
    from train.__main__ import lead, start

    injection = Injection(int(os.environ[MOMENT]), int(os.environ[SIGNAL]))
    sys.argv = ["train", *sys.argv[1:]]
    try:
        injection.run(lambda: lead(start))
    finally:
        Path(os.environ[COUNTED]).write_text(str(injection.count))
