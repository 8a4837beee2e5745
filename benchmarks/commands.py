"""Times the toolkit's own commands, interleaved, as medians: ``python benchmarks/commands.py [--engine]``.

``--list`` times only `toolkit ls` with a thousand runs, each of 30 files and a record as long as a real one's.
"""

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parent.parent
RESULTS = Path(__file__).parent / "commands.json"
ROUNDS = 11
RUNS, FILES, RECORD_BYTES = 1000, 30, 9000
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


def measure_list(rounds: int) -> dict[str, list[tuple[float, float]]]:
    """Return the wall seconds and the processor seconds of ``toolkit ls`` with many runs, in each round."""
    toolkit = [sys.executable, "-m", "toolkit"]
    commands = {"toolkit --help": ["--help"], "toolkit ls": ["ls"], "toolkit ls --kind run": ["ls", "--kind", "run"]}
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
    with tempfile.TemporaryDirectory() as folder:
        _write_runs(Path(folder))
        os.environ["TOOLKIT_RUNS"] = folder
        for _ in range(rounds):
            for name, words in commands.items():
                before = resource.getrusage(resource.RUSAGE_CHILDREN)
                (wall,) = measure({name: [*toolkit, *words]}, 1)[name]
                after = resource.getrusage(resource.RUSAGE_CHILDREN)
                seconds[name].append((wall, sum(after[:2]) - sum(before[:2])))
    return seconds


def _write_runs(runs: Path) -> None:
    record = {"status": "complete", "result": {"test_accuracy": 0.99, "epochs": 20}, "facts": "x" * RECORD_BYTES}
    for number in range(RUNS):
        folder = runs / f"run-{number}"
        (folder / "checkpoints").mkdir(parents=True)
        (folder / "config.yaml").write_text("dataset: digits\n")
        (folder / "manifest.json").write_text(json.dumps(record))
        for name in range(FILES - 2):
            (folder / "checkpoints" / str(name)).touch()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", action="store_true", help="measure image builds too")
    parser.add_argument("--list", action="store_true", help="measure `toolkit ls` with many runs, and nothing else")
    options = parser.parse_args()
    if options.list:
        for name, values in measure_list(ROUNDS).items():
            wall, processor = (statistics.median(each) for each in zip(*values, strict=True))
            print(f"{name:<36} {wall:7.3f} s, of the processor {processor:.3f} s")
        _print_machine()
        return
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


def _print_machine() -> None:
    model = next(line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name"))
    print(f"{model}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")


def _remove_tag() -> None:
    subprocess.run(["docker", "rmi", "--force", TAG], capture_output=True, check=False)


def _read_size(reference: str) -> str:
    return (_read(["docker", "images", "--format", "{{.Size}}", reference]).splitlines() or ["not here"])[0]


def _read(argv: list[str]) -> str:
    return subprocess.run(argv, cwd=ROOT, check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    main()
