"""Runs a training job again and again in forked children, each killed at some moment, until one ends by itself.

    python -m tests.unit.train.killing SEED KILLS ARGUMENTS…

The parent does not use TensorFlow before the last run, so that it can be forked. Kills come at random times, and for
every third child in the middle of replacing a file, which is where a half-written checkpoint would come from. The times
reach from the tracing of the first step to the second epoch, as measured here and now: no child comes to the end, and a
fast machine is hit in the same places as a slow one.
"""

import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

from train.cli import main


def die_while_replacing(countdown: int) -> None:
    """From now on, die at the n-th replacement of a file, before or after it."""
    original = Path.replace
    left = [countdown]

    def replace(self: Path, target: Path) -> Path:
        left[0] -= 1
        if left[0] <= 0 and countdown % 2:
            os.kill(os.getpid(), signal.SIGKILL)
        result = original(self, target)
        if left[0] <= 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    Path.replace = replace  # type: ignore[method-assign, assignment]


def measure(*arguments: str) -> float:
    """Seconds that an unbroken child takes."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        child = os.fork()
        if child == 0:
            os._exit(main([*arguments, "--out", folder]))
        os.waitpid(child, 0)
    return time.monotonic() - began


def run_and_kill(numbers: random.Random, arguments: list[str], *, index: int, start: float, epoch: float) -> bool:
    """Start a child and kill it; returns whether it was killed rather than done."""
    delay = numbers.uniform(0.5 * start, start + epoch)
    countdown = numbers.randint(4, 24)
    child = os.fork()
    if child == 0:
        if index % 3 == 0:
            die_while_replacing(countdown)
        os._exit(main(arguments))
    deadline = time.monotonic() + (delay if index % 3 else 120)
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status) == -signal.SIGKILL
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return True


def loop() -> None:
    """Kill as often as asked, then let the job end; prints how many children died."""
    seed, kills, *arguments = sys.argv[1:]
    numbers, killed = random.Random(int(seed)), 0  # noqa: S311
    measure(*arguments, "--steps", "1")  # the first is slower than the others
    start = measure(*arguments, "--steps", "1")
    epoch = (measure(*arguments, "--epochs", "3") - start) / 2
    for index in range(int(kills)):
        killed += run_and_kill(numbers, arguments, index=index, start=start, epoch=epoch)
    print(f"killed {killed}", flush=True)
    raise SystemExit(main(arguments))


if __name__ == "__main__":
    loop()
