"""Seconds from the command of a short run to its first step, and from its last step to the prompt, by part.

    python -m benchmarks.training.start --beside OTHER/CLONE

Each line that a run prints ends a part. Medians of rounds are reported, in each of which every clone runs once.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
LINES: Final = {
    "native kernels:": "TensorFlow is imported, native kernels are loaded",
    "digits:": "the images are described",
    "first step:": "the first step is done",
    "epoch 1/1": "the last step is done and evaluated",
    "digits by": "pictures and records are written",
}
"""The beginning of a line, and what has happened when it appears."""


def run(clone: Path) -> dict[str, float]:
    """Run one step of digits by the code of a clone. Return the seconds from the start to each line and to the end."""
    with tempfile.TemporaryDirectory() as out:
        argv = [sys.executable, "-m", "train", "digits", "--steps", "1", "--out", out]
        began, seconds = time.monotonic(), dict[str, float]()
        with subprocess.Popen(argv, cwd=clone, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
            assert process.stdout
            for line in process.stdout:
                for start, part in LINES.items():
                    if line.strip().startswith(start):
                        seconds[part] = time.monotonic() - began
        if process.returncode:
            raise SystemExit(f"the run in {clone} ended with exit code {process.returncode}")
    return seconds | {"the process has ended": time.monotonic() - began}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--beside", type=Path, action="append", default=[], help="another clone to run in turn")
    options = parser.parse_args()
    clones = [ROOT, *options.beside]
    measured = {clone: defaultdict[str, list[float]](list) for clone in clones}
    for _ in range(options.rounds):
        for clone in clones:
            for part, seconds in run(clone).items():
                measured[clone][part].append(seconds)
    for clone in clones:
        medians = {part: round(statistics.median(seconds), 2) for part, seconds in measured[clone].items()}
        print(json.dumps({"clone": clone.name, "rounds": options.rounds, "seconds": medians}))


if __name__ == "__main__":
    main()
