"""Runs the workers of one training job as processes of this machine.

    python -m tests.unit.train.worker_processes SEED KILLS ARGUMENTS…

runs the job again and again with one, two or four workers, kills one of them at a random point each time, and lets the
last run finish. Children are forked from this process, which has loaded TensorFlow.
"""

import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tests.unit.train.own.making import write_image
from tests.unit.train.runs import without_drawing
from train.cli import main
from train.cluster import tf_config
from train.cluster.tf_config import VARIABLE
from train.cluster.workers import WAIT
from train.command_line import parse
from train.record import checkpoint

COUNTS, LONGEST = (2, 4, 1), 120.0
DIGITS = ("digits", "--depth", "10", "--shards", "4", "--batch-size", "64", "--threads", "1", "--progress", "plain")
ENDLESS = (*DIGITS, "--epochs", "9999", "--checkpoint-every", "5")
LIMIT = 240.0
ROOT = Path(__file__).parents[3]


def describe(count: int) -> list[str]:
    """Return TF_CONFIG for each of so many workers, on free ports."""
    holders = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    addresses = [f"127.0.0.1:{holder.getsockname()[1]}" for holder in holders]
    for holder in holders:
        holder.close()
    return [tf_config.describe(addresses, index)[VARIABLE] for index in range(count)]


def fork(count: int, arguments: Sequence[str], logs: Path) -> list[int]:
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


class Ended(NamedTuple):
    code: int
    output: str


def start(
    described: str,
    *arguments: str,
    wait: int = 120,
    cwd: Path = ROOT,
    program: Sequence[str] = ("-m", "train"),
) -> subprocess.Popen[str]:
    environment = os.environ | {VARIABLE: described, WAIT: str(wait)}
    words, streams = [sys.executable, *program, *arguments], (subprocess.PIPE, subprocess.STDOUT)
    return subprocess.Popen(words, cwd=cwd, env=environment, stdout=streams[0], stderr=streams[1], text=True)


def end(*processes: subprocess.Popen[str]) -> list[Ended]:
    deadline, found = time.monotonic() + LIMIT, []
    try:
        for process in processes:
            output, _ = process.communicate(timeout=max(1.0, deadline - time.monotonic()))
            found.append(Ended(process.returncode, output))
    finally:
        for process in processes:
            process.kill()
    return found


def train(count: int, *arguments: str) -> dict[str, Any]:
    """Train with so many workers; only the chief may leave anything."""
    out = Path(arguments[arguments.index("--out") + 1])
    places = [out, *(out.with_name(f"{out.name}-{index}") for index in range(1, count))]
    started = [start(text, *arguments[:-1], str(place)) for text, place in zip(describe(count), places, strict=True)]
    for ended in end(*started):
        assert ended.code == 0, ended.output
    assert not any(place.exists() for place in places[1:])
    manifest: dict[str, Any] = json.loads((parse(arguments).run_dir / "manifest.json").read_text())
    return manifest


def wait_for(folder: Path, step: int) -> None:
    deadline = time.monotonic() + LIMIT
    while find_step(folder) < step:
        assert time.monotonic() < deadline, f"no checkpoint of step {step} in {folder}"
        time.sleep(0.02)


def write_pictures(folder: Path) -> Path:
    generator = np.random.default_rng(0)
    for name in ("a", "b", "c"):
        for number in range(40):
            write_image(folder / name / f"{number}.png", generator.integers(0, 256, (32, 32, 3), dtype=np.uint8))
    return folder


def run_and_kill(numbers: random.Random, arguments: list[str], count: int, logs: Path) -> str:
    """Kill a worker some steps after the newest checkpoint; returns what is wrong with the others' end.

    A half-written file may be left then, but under a temporary name; what has its final name is whole.
    """
    folder = parse(arguments).run_dir
    target, victim = find_step(folder) + numbers.randint(1, 20), numbers.randrange(count)
    children = fork(count, arguments, logs)
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
    _, problems = checkpoint.load(folder / "checkpoints")
    for place in (folder, folder / "checkpoints"):  # the next start must remove it
        (place / ".left.k_1ll3d5").touch()
    return "" if good and not problems else f"worker {victim} of {count} was killed: {codes}\n{message}{problems}"


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
