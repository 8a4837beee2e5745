"""One step of training and one of evaluation: from images as bytes to new weights, as functions to compile."""

from collections.abc import Callable
from typing import Final, NamedTuple

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from train.config import TrainConfig
from train.model.densenet import dropout_seed
from train.optimizer import Rule
from train.state import State

GROWTH_INTERVAL: Final = 2000
"""Steps without overflow after which the loss scale doubles (Micikevicius et al., arXiv 1710.03740)."""


class Outcome(NamedTuple):
    """Mean loss of a batch without the weight penalty, how many of it were right, whether gradients are finite."""

    loss: tf.Tensor
    correct: tf.Tensor
    finite: tf.Tensor


TrainStep = Callable[[tf.Tensor, tf.Tensor, tf.Tensor], Outcome]
EvaluationStep = Callable[[tf.Tensor], tf.Tensor]


def make_train_step(
    state: State, rule: Rule, config: TrainConfig, mean: NDArray[np.float64], std: NDArray[np.float64]
) -> TrainStep:
    """A function of images (batch, height, width, channels) as bytes, labels (batch,) and learning rate.

    It moves the state by one step. With mixed_float16 the loss is scaled, and a step whose gradients overflow changes
    nothing but the scale, which it halves.
    """
    model, weights = state.model, [variable.value for variable in state.model.trainable_variables]
    seed = dropout_seed(model)
    scaled = config.precision == "mixed_float16"

    def step(images: tf.Tensor, labels: tf.Tensor, rate: tf.Tensor) -> Outcome:
        state.step.assign_add(1)
        if seed is not None:
            seed.assign([config.seed, tf.cast(state.step, tf.int32)])
        scale = state.loss_scale.read_value()
        with tf.GradientTape() as tape:
            logits = model(normalize_images(images, mean, std, model.input.dtype), training=True)
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
            target = loss * scale if scaled else loss
        gradients = tape.gradient(target, weights)
        finite = tf.constant(True)
        if scaled:
            gradients = [gradient / scale for gradient in gradients]
            finite = tf.reduce_all([tf.reduce_all(tf.math.is_finite(gradient)) for gradient in gradients])
            _adapt_scale(state, finite)

        def update() -> None:
            rate_, count = tf.cast(rate, weights[0].dtype), state.step.read_value()
            for weight, gradient, slots in zip(weights, gradients, state.slots, strict=True):
                rule.update(weight, gradient, slots, rate_, count)

        if scaled:
            tf.cond(finite, update, lambda: None)
        else:
            update()
        predicted = tf.argmax(logits, axis=-1, output_type=labels.dtype)
        return Outcome(loss, tf.reduce_sum(tf.cast(predicted == labels, tf.int32)), finite)

    return step


def _adapt_scale(state: State, finite: tf.Tensor) -> None:
    steady = tf.where(finite, state.steady + 1, 0)
    grow = steady >= GROWTH_INTERVAL
    factor = tf.where(finite, tf.where(grow, 2.0, 1.0), 0.5)
    state.loss_scale.assign(tf.clip_by_value(state.loss_scale * factor, 1.0, 2.0**24))
    state.steady.assign(tf.where(grow, tf.zeros_like(steady), steady))


def make_evaluation_step(model: keras.Model, mean: NDArray[np.float64], std: NDArray[np.float64]) -> EvaluationStep:
    """A function of images as bytes to logits (batch, classes)."""

    def step(images: tf.Tensor) -> tf.Tensor:
        return model(normalize_images(images, mean, std, model.input.dtype), training=False)

    return step


def normalize_images(images: tf.Tensor, mean: NDArray[np.float64], std: NDArray[np.float64], dtype: str) -> tf.Tensor:
    """Bytes to floats with mean 0 and deviation 1 in each channel of the training split."""
    return (tf.cast(images, dtype) - tf.constant(mean, dtype)) / tf.constant(std, dtype)


# Steps have no Python branches on tensors. So they need no AutoGraph, which rewrites the source of every function into
# files in the system's folder for temporary ones, where a process that is killed leaves them.


def compile_train_step(step: TrainStep, config: TrainConfig) -> TrainStep:
    """Make a graph of a step, by XLA if asked to, but for the eager loop."""
    return step if config.loop == "eager" else tf.function(step, jit_compile=config.jit, autograph=False)


def compile_evaluation_step(step: EvaluationStep, config: TrainConfig) -> EvaluationStep:
    """Make a graph of an evaluation step, but for the eager loop."""
    return step if config.loop == "eager" else tf.function(step, jit_compile=config.jit, autograph=False)
