import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from train.errors import IntegrityError
from train.optimizer import Rule
from train.reader import COUNTERS, SLOTS, describe_array


@dataclass(frozen=True)
class State:
    """The variables of a run."""

    model: keras.Model
    slots: list[list[tf.Variable]]  # the values that the update rule keeps for each trainable weight
    step: tf.Variable  # counts all steps
    loss_scale: tf.Variable  # factor of the loss in half precision
    steady: tf.Variable  # counts the steps without overflow since the scale last changed
    skipped: tf.Variable  # counts the steps whose gradient overflowed

    def name_variables(self) -> dict[str, tf.Variable]:
        named = name_weights(self.model)
        for variable, slots in zip(self.model.trainable_variables, self.slots, strict=True):
            named |= {f"{SLOTS}{variable.path}/{index}": slot for index, slot in enumerate(slots)}
        counters = {name: getattr(self, name) for name in COUNTERS}
        return named | counters

    def read(self) -> dict[str, NDArray[np.generic]]:
        return {name: variable.numpy() for name, variable in self.name_variables().items()}

    def write(self, values: Mapping[str, NDArray[np.generic]]) -> None:
        """Set all variables; raises an IntegrityError if the values belong to another model."""
        variables = self.name_variables()
        for name, variable in variables.items():
            if name not in values or values[name].shape != tuple(variable.shape):
                raise IntegrityError(f"the checkpoint does not fit the model: {name}")
        for name, variable in variables.items():
            variable.assign(values[name])


def create(model: keras.Model, rule: Rule, *, initial_scale: float) -> State:
    slots = [
        [tf.Variable(tf.zeros_like(variable.value), trainable=False) for _ in rule.slots]
        for variable in model.trainable_variables
    ]
    return State(
        model,
        slots,
        tf.Variable(0, dtype=tf.int64, trainable=False),
        tf.Variable(initial_scale, dtype=tf.float32, trainable=False),
        tf.Variable(0, dtype=tf.int64, trainable=False),
        tf.Variable(0, dtype=tf.int64, trainable=False),
    )


def name_weights(model: keras.Model) -> dict[str, tf.Variable]:
    return {variable.path: variable.value for variable in model.variables}


def digest(values: Iterable[tuple[str, NDArray[np.generic]]]) -> str:
    state = hashlib.sha256()
    for name, value in sorted(values, key=lambda item: item[0]):
        array = np.ascontiguousarray(value)
        state.update(describe_array(name, array.dtype.str, array.shape))
        state.update(array.tobytes())
    return state.hexdigest()


def digest_weights(model: keras.Model) -> str:
    return digest((name, variable.numpy()) for name, variable in name_weights(model).items())
