"""Starts the workers of one run as processes on the loopback of this machine."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tests.unit.train import crew
from tests.unit.train.own.making import write_image
from train.cli import parse
from train.cluster import VARIABLE
from train.workers import WAIT

DIGITS = ("digits", "--depth", "10", "--shards", "4", "--batch-size", "64", "--threads", "1", "--progress", "plain")
ENDLESS = (*DIGITS, "--epochs", "9999", "--checkpoint-every", "5")
LIMIT = 240.0
ROOT = Path(__file__).parents[3]


class Ended(NamedTuple):
    code: int
    output: str


def start(
    described: str, *arguments: str, wait: int = 120, before: Sequence[str] = (), cwd: Path = ROOT
) -> subprocess.Popen[str]:
    environment = os.environ | {VARIABLE: described, WAIT: str(wait)}
    words, streams = [*before, sys.executable, "-m", "train", *arguments], (subprocess.PIPE, subprocess.STDOUT)
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
    started = [
        start(text, *arguments[:-1], str(place)) for text, place in zip(crew.describe(count), places, strict=True)
    ]
    for ended in end(*started):
        assert ended.code == 0, ended.output
    assert not any(place.exists() for place in places[1:])
    manifest: dict[str, Any] = json.loads((parse(arguments).run_dir / "manifest.json").read_text())
    return manifest


def wait_for(folder: Path, step: int) -> None:
    deadline = time.monotonic() + LIMIT
    while crew.find_step(folder) < step:
        assert time.monotonic() < deadline, f"no checkpoint of step {step} in {folder}"
        time.sleep(0.02)


def write_pictures(folder: Path) -> Path:
    generator = np.random.default_rng(0)
    for name in ("a", "b", "c"):
        for number in range(40):
            write_image(folder / name / f"{number}.png", generator.integers(0, 256, (32, 32, 3), dtype=np.uint8))
    return folder
