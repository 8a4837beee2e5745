from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import tensorflow as tf

from train.config.configuration import TrainConfig
from train.config.resolution import resolve
from train.model.densenet import build
from train.model.formulation import FOR_GPU, Formulation
from train.step import optimizer, state, training

# On a processor XLA has convolutions with channels first, but TensorFlow has not. So XLA runs the whole formulation
# here; with channels last it runs as on a GPU, operation by operation.
FOR_GPU_CHANNELS_LAST = replace(FOR_GPU, channels_first=False)


def configure(dataset: str, **options: Any) -> TrainConfig:
    config = resolve(dataset, **{"growth": 4, "dropout": 0.2, "learning_rate": 0.05, **options})
    return replace(config, layers=(1, 2, 1, 1) if config.stem == "imagenet" else (2, 1))


def make_unit(config: TrainConfig) -> Any:
    return np.full(config.shape[-1], 100.0)


def make_step(config: TrainConfig, form: Formulation, scale: float = 1.0) -> tuple[state.State, Any]:
    """Return the first state of a network and its step, which is not compiled yet."""
    rule, unit = optimizer.choose(config), make_unit(config)
    current = state.create(build(config, form), rule, initial_scale=scale)
    return current, training.make_train_step(current, rule, config, unit, unit / 2, form=form)


def walk(graph: Any) -> Iterator[tf.Operation]:
    yield from graph.get_operations()
    for function in graph._functions.values():
        if hasattr(function, "graph"):
            yield from walk(function.graph)
