from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from train.model.block import Block, Mode, Unit, dense_block
from train.model.formulation import FOR_CPU, Formulation
from train.model.normalization import scale_rectify, statistics_dtype
from train.model.randomness import NONE, Dropout

SHAPE = (4, 6, 6, 5)
UNITS = {"float16": 2.0**-11, "bfloat16": 2.0**-8}
"""The unit roundoff: the largest relative error of one rounding."""


def make_layers(
    *, count: int = 3, growth: int = 4, bottleneck: bool = True, channels: int = 5, dtype: str = "float64"
) -> list[list[Unit]]:
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


def settle(layers: Sequence[Sequence[Unit]], dtype: str) -> list[list[Unit]]:
    """Round kernels to a dtype, and shift maps so far that rounding never changes the sign of a ReLU's input."""

    def change(unit: Unit) -> Unit:
        shifts = np.where(np.arange(unit.beta.shape[0]) % 4, 1.0, -1.0)
        kernel = tf.cast(tf.cast(unit.kernel, dtype), unit.kernel.dtype)
        return Unit(0.2 * unit.gamma, tf.constant(shifts, unit.beta.dtype), kernel)

    return [[change(unit) for unit in units] for units in layers]


def make_input(dtype: str = "float64", shape: Sequence[int] = SHAPE) -> tf.Tensor:
    numbers = np.random.default_rng(5)
    scales, shifts = numbers.uniform(0.5, 2, shape[-1]), numbers.normal(size=shape[-1])
    return tf.constant(numbers.normal(size=shape) * scales + shifts, dtype)


def run(
    x: tf.Tensor,
    layers: Sequence[Sequence[Unit]],
    mode: Mode,
    form: Formulation = FOR_CPU,
    *,
    rate: float = 0.0,
    compiled: bool = False,
    scale: float = 1.0,
    compute: Callable[..., Block] = dense_block,
) -> dict[str, Any]:
    dropout = Dropout(rate, tf.constant([1, 2])) if rate else NONE
    weights = [tensor for units in layers for unit in units for tensor in unit]
    # Give every value another weight in the loss, and scale by a norm that reads the block, as in the network.
    target = tf.constant(np.random.default_rng(7).normal(size=(1, 1, 1, 64)), tf.float64)
    with tf.GradientTape() as tape:
        tape.watch([x, *weights])
        laid = tf.transpose(x, [0, 3, 1, 2]) if form.channels_first else x
        block = compute(laid, layers, mode, form, dropout=dropout, compiled=compiled)
        maps = block.maps
        weight = tf.cast(target[0, 0, 0, : maps.shape[form.axis]], statistics_dtype(maps.dtype))
        rectified = tf.cast(scale_rectify(maps, weight, 0 * weight + 0.1, form), tf.float64)
        loss = tf.reduce_sum(rectified**2) / float(np.prod(x.shape[:3]))
        if form.channels_first:
            maps = tf.transpose(maps, [0, 2, 3, 1])
        scaled = loss * scale
    gradients = [tf.cast(gradient, tf.float64) / scale for gradient in tape.gradient(scaled, [x, *weights])]
    features = (tf.concat(pieces, 0) for pieces in zip(*block.features, strict=True))
    statistics = [*features, *(part for inner in block.inner for part in inner)]
    return {"loss": loss, "maps": maps, "statistics": statistics, "gradients": gradients}


def measure_difference(one: Any, other: Any) -> float:
    worst = 0.0
    for left, right in zip(tf.nest.flatten(one), tf.nest.flatten(other), strict=True):
        a, b = (np.asarray(tf.cast(value, tf.float64)) for value in (left, right))
        worst = max(worst, float(np.linalg.norm(a - b) / max(np.linalg.norm(b), 1e-30)))
    return worst
