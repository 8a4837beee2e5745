"""Run the workers of one training job as processes of this machine, and hurt them.

    python -m tests.unit.train.crew SEED KILLS ARGUMENTS…

runs the job again and again with one, two or four workers, kills one of them at a random point each time, and lets the
last run finish. Children are forked from this process, which has loaded TensorFlow.
"""

import json
import os
import random
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.unit.train.runs import without_drawing
from train.cli import main, parse
from train.cluster import VARIABLE
from train.workers import WAIT

COUNTS, LONGEST = (2, 4, 1), 120.0


def describe(count: int) -> list[str]:
    """Return TF_CONFIG for each of so many workers, on free ports."""
    holders = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    addresses = [f"127.0.0.1:{holder.getsockname()[1]}" for holder in holders]
    for holder in holders:
        holder.close()
    tasks = [{"type": "worker", "index": index} for index in range(count)]
    return [json.dumps({"cluster": {"worker": addresses}, "task": task}) for task in tasks]


def start(count: int, arguments: Sequence[str], logs: Path) -> list[int]:
    children = []
    for index, described in enumerate(describe(count)):
        child = os.fork()
        if child == 0:
            log = os.open(logs / str(index), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(log, 1)
            os.dup2(log, 2)
            os.environ |= {VARIABLE: described, WAIT: "30"}
            os._exit(main(arguments))
        children.append(child)
    return children


def wait(children: Sequence[int], *, seconds: float) -> list[int]:
    """Return the exit codes, negative for signals; kills what does not end in time, and then fails."""
    codes: dict[int, int] = {}
    deadline = time.monotonic() + seconds
    while len(codes) < len(children) and time.monotonic() < deadline:
        for child in set(children) - codes.keys():
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                codes[child] = os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    for child in set(children) - codes.keys():
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert len(codes) == len(children), f"hangs: {codes}"
    return [codes[child] for child in children]


def find_step(folder: Path) -> int:
    return max((int(path.stem.removeprefix("step-")) for path in (folder / "checkpoints").glob("*.json")), default=0)


def run_and_kill(numbers: random.Random, arguments: list[str], count: int, logs: Path) -> str:
    """Kill a worker some steps after the newest checkpoint; returns what is wrong with the others' end."""
    folder = parse(arguments).run_dir
    target, victim = find_step(folder) + numbers.randint(1, 20), numbers.randrange(count)
    children = start(count, arguments, logs)
    deadline = time.monotonic() + LONGEST
    while find_step(folder) < target and time.monotonic() < deadline:
        time.sleep(0.005)
    time.sleep(numbers.uniform(0, 0.2))
    os.kill(children[victim], signal.SIGKILL)
    codes = wait(children, seconds=60)
    others = codes[:victim] + codes[victim + 1 :]
    message = (logs / ("1" if victim == 0 else "0")).read_text() if count > 1 else ""
    named = count == 1 or (f"error: worker {victim} (" in message and message.count("error:") == 1)
    good = codes[victim] == -signal.SIGKILL and others == [10] * len(others) and (victim == 0 or named)
    return "" if good else f"worker {victim} of {count} was killed: {codes}\n{message}"


def loop() -> None:
    seed, kills, *arguments = sys.argv[1:]
    numbers = random.Random(int(seed))  # noqa: S311
    with tempfile.TemporaryDirectory() as logs:
        for index in range(int(kills)):
            trouble = run_and_kill(numbers, arguments, COUNTS[index % len(COUNTS)], Path(logs))
            if trouble:
                raise SystemExit(trouble)
            print(f"killed after step {find_step(parse(arguments).run_dir)}", flush=True)
    raise SystemExit(main(arguments))


if __name__ == "__main__":
    with without_drawing():
        loop()
