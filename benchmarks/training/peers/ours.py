import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.training.peers import make_batch
from train.config.resolution import resolve
from train.config.run import TrainConfig
from train.step import runtime


def load(threads: int) -> None:
    runtime.prepare(threads)
    import keras  # noqa: F401  # its import is part of the framework, not of the candidate

    from train.native import operations

    operations.set_threads(threads)


def resize(config: TrainConfig, pixels: int) -> TrainConfig:
    class Sized(TrainConfig):
        shape = property(lambda _: (pixels, pixels, 3))

    return Sized(**dataclasses.asdict(config))


def make_step(job: dict[str, Any]) -> Callable[[], float]:
    import tensorflow as tf

    from train.step import step

    config = resolve(
        "cifar10",
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
    current, rule = step.start(config)
    unit = np.ones(3)
    function = step.compile_train_step(step.make_train_step(current, rule, config, 0 * unit, unit), config)
    images, labels = make_batch(job)
    arguments = (tf.constant(images), tf.constant(labels, tf.int32), tf.constant(0.1))
    return lambda: float(function(*arguments).loss)
