"""A small dense block with a loss behind it, to compare ways of computing it."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from train.model.block import Block, Mode, Unit, dense_block
from train.model.randomness import NONE, Dropout

Compute = Callable[[], tuple[tf.Tensor, Block, list[tf.Tensor]]]
SHAPE = (4, 6, 6, 5)


def make_layers(
    *, count: int = 3, growth: int = 4, bottleneck: bool = True, channels: int = 5, dtype: str = "float64"
) -> list[list[Unit]]:
    """Random weights of a block."""
    numbers = np.random.default_rng(3)
    layers = []

    def unit(inputs: int, outputs: int, size: int) -> Unit:
        parts = (
            1 + 0.3 * numbers.normal(size=inputs),
            0.3 * numbers.normal(size=inputs),
            numbers.normal(size=(size, size, inputs, outputs)) / np.sqrt(size * size * inputs),
        )
        return Unit(*(tf.constant(part, dtype) for part in parts))

    for _ in range(count):
        if bottleneck:
            layers.append([unit(channels, 4 * growth, 1), unit(4 * growth, growth, 3)])
        else:
            layers.append([unit(channels, growth, 3)])
        channels += growth
    return layers


def make_input(dtype: str = "float64", shape: Sequence[int] = SHAPE) -> tf.Tensor:
    """Random maps whose channels differ in mean and spread."""
    numbers = np.random.default_rng(5)
    scales, shifts = numbers.uniform(0.5, 2, shape[-1]), numbers.normal(size=shape[-1])
    return tf.constant(numbers.normal(size=shape) * scales + shifts, dtype)


def run(
    x: tf.Tensor,
    layers: Sequence[Sequence[Unit]],
    mode: Mode,
    *,
    rate: float = 0.0,
    compiled: bool = False,
    scale: float = 1.0,
    compute: Callable[..., Block] = dense_block,
) -> dict[str, Any]:
    """Loss, maps, statistics and all gradients of a block; the loss is scaled while it is differentiated."""
    dropout = Dropout(rate, tf.constant([1, 2])) if rate else NONE
    weights = [tensor for units in layers for unit in units for tensor in unit]
    # A loss with a different weight on every value, and the scale of a norm that reads the block, as in the network.
    target = tf.constant(np.random.default_rng(7).normal(size=(1, 1, 1, 64)), tf.float64)
    with tf.GradientTape() as tape:
        tape.watch([x, *weights])
        block = compute(x, layers, mode, dropout=dropout, compiled=compiled)
        maps = tf.cast(block.maps, tf.float64)
        weight = target[..., : maps.shape[-1]]
        loss = tf.reduce_sum(tf.nn.relu(maps * weight + 0.1) ** 2) / float(np.prod(x.shape[:3]))
        scaled = loss * scale
    gradients = [tf.cast(gradient, tf.float64) / scale for gradient in tape.gradient(scaled, [x, *weights])]
    statistics = [*block.features, *(part for inner in block.inner for part in inner)]
    return {"loss": loss, "maps": block.maps, "statistics": statistics, "gradients": gradients}


def measure_difference(one: Any, other: Any) -> float:
    """The largest difference between two results, relative to the size of what is compared."""
    worst = 0.0
    for left, right in zip(tf.nest.flatten(one), tf.nest.flatten(other), strict=True):
        a, b = (np.asarray(tf.cast(value, tf.float64)) for value in (left, right))
        worst = max(worst, float(np.linalg.norm(a - b) / max(np.linalg.norm(b), 1e-30)))
    return worst
