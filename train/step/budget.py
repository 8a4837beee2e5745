"""Finds the batch size of ``--batch-size auto``: the largest whose training step fits a memory budget.

Memory grows linearly with the batch size, so two trials predict the largest, which is then tried. Each trial is a
process (``python -m train.step.budget CONFIG``), because a process keeps its peak memory.
"""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from train.config.configuration import TrainConfig
from train.data import Split
from train.errors import PreflightError
from train.step.runtime import REQUIREMENT, fits_device
from train.system import memory, output

PROBES: Final = (16, 48)
UNIT: Final = 8
LARGEST: Final = 4096
SHARE: Final = 0.8

ENOUGH: Final = 0.97

FARTHEST: Final = 4
"""The next size is at most this many times the largest one that fitted, so that no trial uses up the machine's memory.

An estimate can be far too high: if evaluation takes more memory than small steps do, larger steps seem to cost nothing.
"""


class Probe(NamedTuple):
    size: int
    peak: int


def choose_batch_size(config: TrainConfig, threads: int, examples: int, image_bytes: int) -> int:
    """Return the largest multiple of 8 that fits, at most the number of examples. Raises a PreflightError if none fits.

    The data set's images take `image_bytes` bytes of the budget. A GPU holds them only if they are few.
    """
    device = read_device_memory()
    budget = int(config.memory_budget * 1e9 or SHARE * (device or memory.read_free()))
    budget -= image_bytes if not device or fits_device(image_bytes, device) else 0
    limit = min(LARGEST, examples) // UNIT * UNIT
    probes = [Probe(size, measure_peak(config, threads, size)) for size in PROBES]
    while True:
        best = max((probe for probe in probes if probe.peak <= budget), default=None)
        size = min(limit, _estimate(probes, budget))
        if best and (size <= best.size or best.peak >= ENOUGH * budget):
            return min(best.size, limit)
        if size < UNIT:
            break
        probes = sorted([*probes, Probe(size, measure_peak(config, threads, size))])
    raise PreflightError(
        f"no batch fits {budget / 1e9:.1f} GB, what is left for a step",
        why=f"one with {probes[0].size} images takes {probes[0].peak / 1e9:.1f} GB",
        remedy="use a smaller model, --memory shared, or a larger --memory-budget",
    )


def _estimate(probes: list[Probe], budget: int) -> int:
    fitting = [probe for probe in probes if probe.peak <= budget]
    beyond = probes[len(fitting) :]
    low, high = (fitting + beyond)[max(0, len(fitting) - (1 if beyond else 2)) :][:2]
    slope = max((high.peak - low.peak) / (high.size - low.size), 1.0)
    size = low.size + (budget - low.peak) / slope
    if fitting:
        size = min(size, FARTHEST * fitting[-1].size)
    if beyond:
        size = min(size, beyond[0].size - UNIT)
    return int(size) // UNIT * UNIT


def read_device_memory() -> int:
    """Return the GPU memory in bytes that TensorFlow may use; 0 without a GPU. Another process asks TensorFlow."""
    if not any(path.exists() for path in GPU_FILES):
        return 0
    return _ask("TensorFlow could not say how much memory the GPU has", "--device")


GPU_FILES: Final = (Path("/dev/nvidiactl"), Path("/dev/dxg"))
"""Device files of the driver, on Linux and in WSL. Without them there is no GPU to ask TensorFlow about."""


def _read_device_memory() -> int:
    from train.step import runtime

    runtime.prepare(1)
    import tensorflow as tf

    tf.zeros(1)  # creates the devices with the settings of `prepare`
    return runtime.read_device_limit()


def measure_peak(config: TrainConfig, threads: int, size: int) -> int:
    settings = json.dumps(config.as_dict() | {"batch_size": size, "threads": threads})
    return _ask(f"a step with {size} images does not run here", settings)


def _ask(trouble: str, question: str) -> int:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "train.step.budget", question],  # -P: no module of the current folder
        capture_output=True,
        text=True,
        check=False,
        # A job that requires a GPU ends if it finds none. This process has to answer in any case.
        env={**os.environ, REQUIREMENT: "0"},
    )
    if done.returncode:
        raise PreflightError(
            trouble,
            why=done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"exit code {done.returncode}",
        )
    return int(done.stdout)


def _probe(config: TrainConfig) -> int:
    from train.step import runtime

    runtime.prepare(config.threads, tf32=config.tf32, kernels=config.kernels)
    import numpy as np
    import tensorflow as tf

    from train.step import evaluation, training

    current, rule = training.start(config)
    unit = np.ones(config.shape[-1])
    function = training.compile_train_step(training.make_train_step(current, rule, config, unit, unit), config)
    evaluate = evaluation.compile_evaluation_step(evaluation.make_evaluation_step(current.model, unit, unit), config)
    evaluate(tf.zeros((evaluation.EVALUATION_BATCH, *config.shape), tf.uint8))
    images = tf.zeros((config.batch_size, *config.shape), tf.uint8)
    for _ in range(2):
        function(images.numpy(), np.zeros(config.batch_size, np.int32), np.asarray(0, np.float32)).read()
    if tf.config.list_logical_devices("GPU"):
        return int(tf.config.experimental.get_memory_info("GPU:0")["peak"])
    # getrusage has a maximum too, but it includes the memory of the parent at the fork, with its data set.
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def fix_batch_size(config: TrainConfig, recorded: int, threads: int, train: Split) -> TrainConfig:
    if config.batch_size:
        return config
    size = recorded or choose_batch_size(config, threads, len(train), train.images.nbytes)
    return replace(config, batch_size=size)


if __name__ == "__main__":
    asked = sys.argv[1]
    output.show(str(_read_device_memory() if asked == "--device" else _probe(TrainConfig.from_dict(json.loads(asked)))))
