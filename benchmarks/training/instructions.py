"""Counts the instructions of a training step on emulated 64-bit ARM, with native and with TensorFlow's kernels.

    TOOLKIT_ARM_PYTHON=.venv-arm/python python -m benchmarks.training.instructions

`.ci/run weekly` makes that Python. The number of instructions is no time: it says nothing of caches, memory, nor how
many a processor does at once. Each count is that of a run with more steps minus that of one with fewer.
"""

import argparse
import json
import os
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from train.native import library

PLUGIN: Final = Path(__file__).with_name("instructions.c")
COMPILER: Final = "aarch64-linux-gnu-g++"


def count(kernels: str, steps: int, options: list[str], environment: dict[str, str], folder: Path) -> int:
    """Return the instructions of a whole run."""
    argv = [os.environ["TOOLKIT_ARM_PYTHON"], "-m", "train", "digits", "--threads", "1", "--kernels", kernels, *options]
    argv += ["--steps", str(steps), "--batch-size", "64", "--out", str(folder / f"{kernels}-{steps}")]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=True)
    found = re.search(r"^instructions: (\d+)$", done.stderr, re.MULTILINE)
    assert found, done.stderr
    return int(found[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--steps", type=int, nargs=2, default=(2, 6))
    parser.add_argument("option", nargs="*", help="options of the training job, after --")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        plugin = folder / "instructions.so"
        subprocess.run(["cc", "-shared", "-fPIC", "-O2", PLUGIN, "-o", plugin], check=True)
        built = library.compile_library(COMPILER, folder)
        environment = {**os.environ, "QEMU_PLUGIN": str(plugin), library.VARIABLE: str(built)}
        for kernels in ("native", "stock"):
            few, many = (count(kernels, steps, options.option, environment, folder) for steps in options.steps)
            each = (many - few) / (options.steps[1] - options.steps[0])
            answer = {"kernels": kernels, "instructions of a step": round(each), "of the run": many}
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
