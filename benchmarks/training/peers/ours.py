import dataclasses
from typing import Any

import numpy as np

from benchmarks.training.peers import Training, iterate
from train.config.configuration import TrainConfig
from train.config.resolution import resolve
from train.step import runtime


def load(job: dict[str, Any]) -> None:
    runtime.prepare(job["threads"], kernels=job.get("kernels", "stock"))
    import keras  # noqa: F401  # its import is part of the framework, not of the candidate

    from train.native import operations

    operations.set_threads(job["threads"])


def resize(config: TrainConfig, pixels: int) -> TrainConfig:
    class Sized(TrainConfig):
        shape = property(lambda _: (pixels, pixels, 3))

    return Sized(**dataclasses.asdict(config))


def choose(instructions: str) -> None:
    """Let the native kernels use this instruction set."""
    import ctypes

    from train.native import library

    assert ctypes.CDLL(str(library.find().path)).toolkit_choose(instructions.encode()), instructions


def make(job: dict[str, Any]) -> Training:
    import tensorflow as tf

    from train.step import training

    if "instructions" in job:
        choose(job["instructions"])

    config = resolve(
        job.get("data", "cifar10"),
        model=job.get("model", "bc-100-12"),
        depth=job.get("depth"),
        memory=job.get("memory", "shared"),
        jit=job.get("jit", False),
        precision=job.get("precision", "float32"),
        kernels=job.get("kernels", "stock"),
        batch_size=job["batch"],
    )
    if "pixels" in job:
        config = resize(config, job["pixels"])
    current, rule = training.start(config)
    unit = np.ones(config.shape[-1])
    function = training.compile_train_step(training.make_train_step(current, rule, config, 0 * unit, unit), config)
    batches, rate = iterate(job), tf.constant(0.1)

    def run() -> float:
        images, labels = next(batches)
        return float(function(tf.constant(images), tf.constant(labels, tf.int32), rate).loss)

    return Training(run, lambda: [weight.numpy() for weight in current.weights.values()])
