"""Compares native operations and blocks with the same in float64."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tests.unit.train.blocks import make_layers, settle
from train.model.block import dense_block, dense_block_inference
from train.model.formulation import FOR_CPU, FOR_NATIVE, Formulation
from train.model.normalization import Statistics
from train.model.randomness import NONE

BOUND = 2e-6
"""Largest relative error of a result or a gradient."""
BLOCK_BOUND = 7e-6
"""The same for a block of up to six layers: 2e-6 to 4e-6 were measured, with stock kernels 8e-6 to 18e-6."""


def draw(shapes: Sequence[Sequence[int]], seed: int = 0) -> list[Any]:
    numbers = np.random.default_rng(seed)
    return [numbers.normal(size=shape).astype(np.float32) for shape in shapes]


def differentiate(run: Callable[..., tf.Tensor], inputs: Sequence[Any], upstream: Any = None) -> list[Any]:
    with tf.GradientTape() as tape:
        tensors = [tf.constant(value) for value in inputs]
        tape.watch(tensors)
        y = run(*tensors)
    upstream = draw([y.shape], seed=1)[0].astype(y.dtype.as_numpy_dtype) if upstream is None else upstream
    return [y.numpy(), *(part.numpy() for part in tape.gradient(y, tensors, tf.constant(upstream)))]


def measure_terms(found: Any, expected: Any, summed: int = 0) -> float:
    """Return the norm of the difference relative to that of the terms, about 1: a sum that cancels is less exact.

    `summed` is the number of elements that the sums of a parameter's gradient share.
    """
    least = 0.1 * math.sqrt(max(expected.size, summed))
    return float(np.linalg.norm(found - expected) / max(np.linalg.norm(expected), least))


def compare_blocks(
    shape: tuple[int, int, int, int],
    count: int,
    growth: int,
    form: Formulation = FOR_NATIVE,
    dtype_of_maps: str = "float32",
) -> dict[str, float]:
    layers = settle(make_layers(count=count, growth=growth, channels=shape[-1], dtype="float32"), "float32")
    numbers = np.random.default_rng(5)
    x = (numbers.normal(size=shape) * numbers.uniform(0.5, 2, shape[-1]) + numbers.normal(size=shape[-1])).astype("f")
    weight = numbers.normal(size=(*shape[:3], shape[3] + count * growth)).astype("f")
    results = []
    for tried, dtype in ((form, "float32"), (FOR_CPU, "float64")):
        units = [[type(unit)(*(tf.cast(part, dtype) for part in unit)) for unit in layer] for layer in layers]
        weights = [part for layer in units for unit in layer for part in unit]
        of_maps = dtype_of_maps if dtype == "float32" else dtype
        inputs, upstream = (tf.cast(tf.cast(value, dtype_of_maps), of_maps) for value in (x, weight))
        if tried.channels_first:
            inputs, upstream = (tf.transpose(value, [0, 3, 1, 2]) for value in (inputs, upstream))
        with tf.GradientTape() as tape:
            tape.watch([inputs, *weights])
            block = dense_block(inputs, units, "plain" if dtype == "float64" else "shared", tried, dropout=NONE)
        d_x, *gradients = tape.gradient(block.maps, [inputs, *weights], upstream)
        # Scale and shift of a unit together: if the next norm removes a shift, the gradient of the shift is 0.
        parts = [gradients[start : start + 3] for start in range(0, len(gradients), 3)]
        joined = [part for gamma, beta, kernel in parts for part in (tf.concat([gamma, beta], 0), kernel)]
        features = Statistics(*(tf.concat(pieces, 0) for pieces in zip(*block.features, strict=True)))
        inferred = dense_block_inference(inputs, units, features, block.inner, tried)
        maps = [block.maps, d_x, inferred]
        if tried.channels_first:
            maps = [tf.transpose(value, [0, 2, 3, 1]) for value in maps]
        maps = [tf.cast(value, dtype) for value in maps]
        statistics = [*features, *(part for each in block.inner for part in each)]
        results.append({"maps": maps, "statistics": statistics, "gradients": joined})
    found, expected = results
    return {
        name: max(
            [0, *(measure_terms(one, other.numpy()) for one, other in zip(found[name], expected[name], strict=True))]
        )
        for name in found
    }
