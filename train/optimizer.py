"""Update rules as pure functions of (weight, gradient, slots, learning rate, step).

Written here rather than taken from Keras because the paper's rule is Torch's: weight decay is an L2 penalty inside
the gradient, and Nesterov momentum looks ahead by the learning rate of this step (Sutskever et al., ICML 2013).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import tensorflow as tf

from train.config import Optimizer, TrainConfig

Slots = tuple[tf.Tensor, ...]


@dataclass(frozen=True)
class Rule:
    """An update rule.

    Attributes:
        slots: names of what is remembered for each weight, zero at first.
        update: (weight, gradient, slots, learning rate, step from 1) to (new weight, new slots).
    """

    slots: tuple[str, ...]
    update: Callable[[tf.Tensor, tf.Tensor, Sequence[tf.Tensor], tf.Tensor, tf.Tensor], tuple[tf.Tensor, Slots]]


def choose(config: TrainConfig) -> Rule:
    """The update rule of a run, with weight decay."""
    make: dict[Optimizer, Callable[[float], Rule]] = {"sgd": make_sgd, "adam": make_adam}
    return _penalize(make[config.optimizer](config.momentum), config.weight_decay)


def make_sgd(momentum: float) -> Rule:
    """Gradient descent with Nesterov momentum."""

    def update(
        weight: tf.Tensor, gradient: tf.Tensor, slots: Sequence[tf.Tensor], rate: tf.Tensor, step: tf.Tensor
    ) -> tuple[tf.Tensor, Slots]:
        del step
        velocity = momentum * slots[0] + gradient
        return weight - rate * (gradient + momentum * velocity), (velocity,)

    return Rule(("velocity",), update)


ADAM_SECOND_DECAY: Final = 0.999
ADAM_EPSILON: Final = 1e-8


def make_adam(first_decay: float) -> Rule:
    """Adam (Kingma and Ba, arXiv 1412.6980, algorithm 1)."""

    def update(
        weight: tf.Tensor, gradient: tf.Tensor, slots: Sequence[tf.Tensor], rate: tf.Tensor, step: tf.Tensor
    ) -> tuple[tf.Tensor, Slots]:
        first = first_decay * slots[0] + (1 - first_decay) * gradient
        second = ADAM_SECOND_DECAY * slots[1] + (1 - ADAM_SECOND_DECAY) * tf.square(gradient)
        count = tf.cast(step, weight.dtype)
        unbiased = first / (1 - tf.pow(tf.constant(first_decay, weight.dtype), count))
        spread = tf.sqrt(second / (1 - tf.pow(tf.constant(ADAM_SECOND_DECAY, weight.dtype), count)))
        return weight - rate * unbiased / (spread + ADAM_EPSILON), (first, second)

    return Rule(("first", "second"), update)


def _penalize(rule: Rule, decay: float) -> Rule:
    if not decay:
        return rule

    def update(
        weight: tf.Tensor, gradient: tf.Tensor, slots: Sequence[tf.Tensor], rate: tf.Tensor, step: tf.Tensor
    ) -> tuple[tf.Tensor, Slots]:
        return rule.update(weight, gradient + decay * weight, slots, rate, step)

    return Rule(rule.slots, update)
