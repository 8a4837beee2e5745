"""Defines update rules: how a step changes a weight, and which values are kept for each weight between steps.

The paper's rule is Torch's, not Keras': weight decay is an L2 penalty in the gradient, and Nesterov momentum looks
ahead by the learning rate of this step (Sutskever et al., ICML 2013).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import tensorflow as tf

from train.config.configuration import TrainConfig
from train.native import operations

Update = Callable[[tf.Variable, tf.Tensor, Sequence[tf.Variable], tf.Tensor, tf.Tensor], None]

DecayOf = Callable[[tf.Variable], float]
"""Returns the weight decay of a weight."""


@dataclass(frozen=True)
class Rule:
    """An update rule."""

    slots: tuple[str, ...]  # names of the values kept for each weight, which start at zero
    update: Update  # changes weight and slots in place, given (weight, gradient, slots, learning rate, count from 1)


def choose(config: TrainConfig) -> Rule:
    native = config.kernels == "native"

    def decay_of(weight: tf.Variable) -> float:
        # Kernels have two dimensions and more; biases, and scale and shift of norms, have one.
        return config.weight_decay if config.decay_norms or weight.shape.rank > 1 else 0.0

    if native and config.optimizer == "sgd":
        return make_native_sgd(config.momentum, decay_of)
    rule = make_sgd(config.momentum) if config.optimizer == "sgd" else make_adam(config.momentum, native=native)
    if not config.weight_decay:
        return rule
    return _decouple(rule, decay_of) if config.optimizer == "adamw" else _penalize(rule, decay_of)


def make_sgd(momentum: float) -> Rule:
    """Return gradient descent with Nesterov momentum: v = momentum v + g, then w = w - rate (g + momentum v)."""

    def update(
        weight: tf.Variable, gradient: tf.Tensor, slots: Sequence[tf.Variable], rate: tf.Tensor, count: tf.Tensor
    ) -> None:
        del count
        tf.raw_ops.ResourceApplyMomentum(
            var=weight.handle,
            accum=slots[0].handle,
            lr=rate,
            grad=gradient,
            momentum=tf.constant(momentum, weight.dtype),
            use_nesterov=True,
        )

    return Rule(("velocity",), update)


def make_native_sgd(momentum: float, decay_of: DecayOf) -> Rule:
    """Return the rule of `make_sgd` with a penalty, whose bits do not depend on how TensorFlow was compiled."""

    def update(
        weight: tf.Variable, gradient: tf.Tensor, slots: Sequence[tf.Variable], rate: tf.Tensor, count: tf.Tensor
    ) -> None:
        del count
        operations.update_by_momentum(weight, slots[0], gradient, rate, momentum=momentum, decay=decay_of(weight))

    return Rule(("velocity",), update)


ADAM_SECOND_DECAY: Final = 0.999
ADAM_EPSILON: Final = 1e-8


def make_adam(first_decay: float, *, native: bool = False) -> Rule:
    """Return Adam (Kingma and Ba, arXiv 1412.6980, algorithm 1).

    All of its operations but the powers are correctly rounded by IEEE 754.
    """

    def power(base: float, count: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
        return operations.raise_to(base, count) if native else tf.pow(tf.constant(base, dtype), tf.cast(count, dtype))

    def update(
        weight: tf.Variable, gradient: tf.Tensor, slots: Sequence[tf.Variable], rate: tf.Tensor, count: tf.Tensor
    ) -> None:
        first = first_decay * slots[0] + (1 - first_decay) * gradient
        second = ADAM_SECOND_DECAY * slots[1] + (1 - ADAM_SECOND_DECAY) * tf.square(gradient)
        unbiased = first / (1 - power(first_decay, count, weight.dtype))
        spread = tf.sqrt(second / (1 - power(ADAM_SECOND_DECAY, count, weight.dtype)))
        weight.assign_sub(rate * unbiased / (spread + ADAM_EPSILON))
        for slot, value in zip(slots, (first, second), strict=True):
            slot.assign(value)

    return Rule(("first", "second"), update)


def _penalize(rule: Rule, decay_of: DecayOf) -> Rule:
    def update(
        weight: tf.Variable, gradient: tf.Tensor, slots: Sequence[tf.Variable], rate: tf.Tensor, count: tf.Tensor
    ) -> None:
        decay = decay_of(weight)
        rule.update(weight, gradient + decay * weight if decay else gradient, slots, rate, count)

    return Rule(rule.slots, update)


def _decouple(rule: Rule, decay_of: DecayOf) -> Rule:
    """Return the rule with weights that shrink by rate times decay, apart from their gradient: AdamW.

    Loshchilov and Hutter, arXiv 1711.05101, algorithm 2, with the learning rate as the schedule's multiplier.
    """

    def update(
        weight: tf.Variable, gradient: tf.Tensor, slots: Sequence[tf.Variable], rate: tf.Tensor, count: tf.Tensor
    ) -> None:
        decay = decay_of(weight)
        if decay:
            weight.assign_sub(rate * decay * weight)
        rule.update(weight, gradient, slots, rate, count)

    return Rule(rule.slots, update)
