"""Times the toolkit's own commands, interleaved, as medians: ``python benchmarks/commands.py [--engine]``."""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parent.parent
RESULTS = Path(__file__).parent / "commands.json"
ROUNDS = 11
TAG = "toolkit/bench:ours"
IMAGES = {
    "base stand-in": "toolkit/base:python3.11-trixie",
    "train, cpu set": TAG,
    "runtime, cuda-12.6.1 set": "toolkit/runtime:cuda-12.6.1-*",
}
"""Images whose sizes are recorded, if this machine has them."""


def measure(
    commands: dict[str, list[str]], rounds: int, before: Callable[[], object] = lambda: None
) -> dict[str, list[float]]:
    """Return the wall seconds of each command in each round. `before` is called before each run and is not timed."""
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(rounds):
        for name, argv in commands.items():
            before()
            start = time.perf_counter()
            subprocess.run(argv, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
            seconds[name].append(time.perf_counter() - start)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", action="store_true", help="measure image builds too")
    options = parser.parse_args()
    toolkit = [sys.executable, "-m", "toolkit"]
    engine = "docker" if options.engine else "host"
    up = [*toolkit, "up", "digits", "--engine", engine, "--epochs", "1"]
    subprocess.run(up, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    commands = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "toolkit --help": [*toolkit, "--help"],
        "toolkit matrix": [*toolkit, "matrix"],
        "toolkit up, all up to date": up,
    }
    medians = {name: statistics.median(values) for name, values in measure(commands, ROUNDS).items()}
    sizes = {}
    if options.engine:
        build = [*toolkit, "build-image", "--tag"]
        planned = json.loads(_read([*build, TAG, "--dry-run", "--json"]))["commands"][0]
        warm = {"image build, warm: docker buildx": planned, "image build, warm: toolkit": [*build, TAG]}
        subprocess.run(planned, cwd=ROOT, check=True, stderr=subprocess.DEVNULL)
        # Without its tag the image counts as missing, so the build runs, with every layer from the cache.
        medians |= {name: statistics.median(values) for name, values in measure(warm, ROUNDS, _remove_tag).items()}
        sizes = {name: _read_size(reference) for name, reference in IMAGES.items()}
    for name, value in medians.items():
        print(f"{name:<36} {value:7.3f} s")
    load = f"load {os.getloadavg()[0]:.1f}"
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, {load}"
    RESULTS.write_text(json.dumps({"machine": machine, "seconds": medians, "images": sizes}, indent=2) + "\n")


def _remove_tag() -> None:
    subprocess.run(["docker", "rmi", "--force", TAG], capture_output=True, check=False)


def _read_size(reference: str) -> str:
    return (_read(["docker", "images", "--format", "{{.Size}}", reference]).splitlines() or ["not here"])[0]


def _read(argv: list[str]) -> str:
    return subprocess.run(argv, cwd=ROOT, check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    main()
