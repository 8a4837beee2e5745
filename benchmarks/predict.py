"""Times ``toolkit predict`` of one image in fresh processes, interleaved, and how much of it is TensorFlow's import.

    python -m benchmarks.predict RUN IMAGE [--rounds 5] [--out FILE]

Files are in the page cache of the system: each command runs once before it is timed. CPU seconds are those of the
process and its children.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.training.inputs import name_processor

ROOT = Path(__file__).parent.parent
IMPORT = "from train.use import network\nwith network.hiding_optional_packages():\n    import tensorflow"
"""The import as the command does it, without the packages that Keras can do without."""


def measure(argv: list[str]) -> dict[str, float]:
    """Return the wall and CPU seconds of a command."""
    began = time.perf_counter()
    process = subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - began
    if status:
        raise SystemExit(f"exit code {os.waitstatus_to_exitcode(status)}: {' '.join(argv)}")
    return {"wall": wall, "cpu": usage.ru_utime + usage.ru_stime}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("image", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    place = [str(options.run.absolute()), str(options.image.absolute())]
    toolkit = [sys.executable, "-m", "toolkit", "predict", *place, "--engine", "host"]
    measure(toolkit)  # also makes the environment of the job
    python = str(max(ROOT.glob(".toolkit/environment-cpu-*/venv/bin/python"), key=lambda path: path.lstat().st_mtime))
    commands = {
        "start of Python": [python, "-c", "pass"],
        "import tensorflow": [python, "-c", "import tensorflow"],
        "import as in the job": [python, "-c", IMPORT],
        "python -m train predict": [python, "-m", "train", "predict", *place],
        "toolkit predict": toolkit,
    }
    for argv in commands.values():
        measure(argv)
    result: dict[str, Any] = {"processor": name_processor(), "load_before": os.getloadavg()[0]}
    rounds = [{name: measure(argv) for name, argv in commands.items()} for _ in range(options.rounds)]
    result["load_after"] = os.getloadavg()[0]
    result["seconds"] = {
        name: {kind: round(statistics.median(each[name][kind] for each in rounds), 2) for kind in ("wall", "cpu")}
        for name in commands
    }
    print(f"{result['processor']}; load {result['load_before']:.1f} before, {result['load_after']:.1f} after")
    for name, found in result["seconds"].items():
        print(f"{name:<24} {found['wall']:6.2f} s, CPU {found['cpu']:6.2f} s")
    if options.out:
        options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
