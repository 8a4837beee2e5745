import hashlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from train.errors import DataError, IntegrityError
from train.record import initial
from train.record.reader import COUNTERS, SLOTS, describe_array
from train.step.optimizer import Rule


@dataclass(frozen=True)
class State:
    """The variables of a run.

    If there are running averages (Polyak and Juditsky, SIAM J. Control Optim. 30, 1992), a run evaluates them, and they
    are its weights in a checkpoint, which keeps those of the model as slots.
    """

    model: keras.Model
    slots: list[list[tf.Variable]]  # the values that the update rule keeps for each trainable weight
    step: tf.Variable  # counts all steps
    loss_scale: tf.Variable  # factor of the loss in half precision
    steady: tf.Variable  # counts the steps without overflow since the scale last changed
    skipped: tf.Variable  # counts the steps whose gradient overflowed
    ema: float  # the share of its value that a running average keeps at each step
    averages: dict[str, tf.Variable]  # running averages of all weights, or none
    best: dict[str, tf.Variable]  # the weights of the best epoch, or none

    @property
    def weights(self) -> dict[str, tf.Variable]:
        """The weights that the run evaluates."""
        return self.averages or name_weights(self.model)

    def name_variables(self) -> dict[str, tf.Variable]:
        named = dict(self.weights)
        for variable, slots in zip(self.model.trainable_variables, self.slots, strict=True):
            named |= {f"{SLOTS}{variable.path}/{index}": slot for index, slot in enumerate(slots)}
        if self.averages:
            named |= {f"{SLOTS}{path}/trained": weight for path, weight in name_weights(self.model).items()}
        named |= {f"{SLOTS}{path}/best": weight for path, weight in self.best.items()}
        counters = {name: getattr(self, name) for name in COUNTERS}
        return named | counters

    def average(self) -> None:
        """Move the running averages after a step."""
        weights = name_weights(self.model)
        for path, average in self.averages.items():
            average.assign(average * self.ema + weights[path] * (1 - self.ema))

    def restart_averages(self) -> None:
        """Begin the running averages anew from the weights."""
        for path, weight in name_weights(self.model).items():
            if path in self.averages:
                self.averages[path].assign(weight)

    def keep_best(self) -> None:
        """Take the weights that the run evaluates as those of the best epoch."""
        for path, weight in self.weights.items():
            self.best[path].assign(weight)

    def restore_best(self) -> None:
        for path, weight in self.weights.items():
            weight.assign(self.best[path])

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Give the model the weights that the run evaluates, and then its own again."""
        weights = name_weights(self.model)
        own_weights = {path: weight.read_value() for path, weight in weights.items()} if self.averages else {}
        for path in own_weights:
            weights[path].assign(self.averages[path])
        try:
            yield
        finally:
            for path, value in own_weights.items():
                weights[path].assign(value)

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


def create(
    model: keras.Model, rule: Rule, *, initial_scale: float, ema: float = 0.0, keeps_best: bool = False
) -> State:
    """Make the state before the first step. Averages begin as the initial weights."""

    def copy(*, wanted: bool) -> dict[str, tf.Variable]:
        weights = name_weights(model) if wanted else {}
        return {path: tf.Variable(weight.read_value(), trainable=False) for path, weight in weights.items()}

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
        ema,
        copy(wanted=ema > 0),
        copy(wanted=keeps_best),
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


def digest_weights(weights: Mapping[str, tf.Variable]) -> str:
    return digest((name, variable.numpy()) for name, variable in weights.items())


def assign_weights(model: keras.Model, start: initial.Weights, class_names: tuple[str, ...]) -> str:
    """Give a model its initial weights; returns what was taken over. Raises a DataError if they do not fit."""
    same = start.class_names == class_names
    weights = {
        name: variable
        for name, variable in name_weights(model).items()
        if same or not name.startswith(initial.CLASSIFIER)
    }
    for name, variable in weights.items():
        if name not in start.values or start.values[name].shape != tuple(variable.shape):
            raise DataError(
                f"the weights to start from do not fit the model: {name}",
                remedy="leave out the options of the model: it is then that of --init-from",
            )
    for name, variable in weights.items():
        variable.assign(start.values[name].astype(variable.dtype.as_numpy_dtype))
    return "all weights" if same else f"all weights but the classifier's, for {len(class_names)} other classes"
