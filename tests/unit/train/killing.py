"""Run a training job again and again in forked children, and kill each until the last one may finish.

    python -m tests.unit.train.killing SEED KILLS ARGUMENTS…

The times of the kills are measured first, and reach from the tracing of the first step to the second epoch, so that
fast and slow machines are killed at the same points. A child that gets faster than measured is killed when it has ended
an epoch, so that it does not come to the end. Every third child dies while it replaces a file.
"""

import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

from tests.unit.train.runs import without_drawing
from train.cli import main


def die_while_replacing(countdown: int) -> None:
    """Make this process die at its n-th replacement of a file: before it if n is odd, otherwise after it."""
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
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        child = os.fork()
        if child == 0:
            os._exit(main([*arguments, "--out", folder]))
        os.waitpid(child, 0)
    return time.monotonic() - began


def count_epochs(arguments: list[str]) -> int:
    """Count the epochs that are written down in the folder of runs behind `--out`."""
    folder = Path(arguments[arguments.index("--out") + 1])
    return sum(path.read_bytes().count(b"\n") for path in folder.glob("*/metrics.csv"))


def run_and_kill(numbers: random.Random, arguments: list[str], *, index: int, start: float, epoch: float) -> bool:
    delay = numbers.uniform(0.5 * start, start + epoch)
    countdown = numbers.randint(4, 24)
    epochs = count_epochs(arguments)
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
        if index % 3 and count_epochs(arguments) > max(epochs, 1):
            break
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return True


def loop() -> None:
    seed, kills, *arguments = sys.argv[1:]
    numbers, killed = random.Random(int(seed)), 0  # noqa: S311
    measure(*arguments, "--steps", "1")  # the first run is slower than the others
    start = measure(*arguments, "--steps", "1")
    epoch = (measure(*arguments, "--epochs", "3") - start) / 2
    for index in range(int(kills)):
        killed += run_and_kill(numbers, arguments, index=index, start=start, epoch=epoch)
    print(f"killed {killed}", flush=True)
    raise SystemExit(main(arguments))


if __name__ == "__main__":
    with without_drawing():
        loop()
