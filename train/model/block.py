"""The dense block as a pure function, in three memory modes that compute the same numbers.

A layer reads all maps made before it in its block: norm, ReLU, convolution, once (3x3) or twice (1x1, then 3x3), and
adds `growth` maps (Huang et al., arXiv 1608.06993). Stored naively, what lies between takes memory that grows with the
square of the depth (Pleiss et al., "Memory-efficient implementation of DenseNets", arXiv 1707.06990).

- ``plain`` keeps everything: the reference, differentiated by TensorFlow.
- ``recompute`` keeps the input and output of each layer and runs the layer again in the backward pass.
- ``shared`` computes the statistics of each map once and keeps one normalised buffer; see ``train.model.shared``.

This module is the seam for a fused operation: `dense_block` is all that the rest of the network knows of it.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import tensorflow as tf

from train.model.convolution import convolve
from train.model.formulation import Formulation
from train.model.normalization import EPSILON, Statistics, apply_statistics, normalize, scale_shift, standardize
from train.model.randomness import Dropout

Mode = Literal["plain", "recompute", "shared"]


class Unit(NamedTuple):
    """One norm-ReLU-convolution: scale and shift (inputs,), kernel (height, width, inputs, outputs)."""

    gamma: tf.Tensor
    beta: tf.Tensor
    kernel: tf.Tensor


Layer = Sequence[Unit]
"""One unit, or two with bottleneck."""


class Block(NamedTuple):
    """What a dense block returns.

    Attributes:
        maps: all maps of the block, normalised but not yet scaled. What reads them begins with a norm, of which only
            scale and shift are left to do.
        features: statistics of all maps before they were normalised, in pieces that lie one behind the other.
        inner: with bottleneck, for each layer the statistics between its two convolutions.
    """

    maps: tf.Tensor
    features: tuple[Statistics, ...]
    inner: tuple[Statistics, ...]


def dense_block(
    x: tf.Tensor,
    layers: Sequence[Layer],
    mode: Mode,
    form: Formulation,
    *,
    dropout: Dropout,
    compiled: bool = False,
) -> Block:
    """Run a dense block in training, by the statistics of the batch.

    Args:
        x: the maps it starts from.
        layers: one or two units each.
        mode: how the backward pass gets at what lies between; never what is computed.
        form: how to compute it on this device; it says how the maps lie.
        dropout: what is dropped after each convolution.
        compiled: the caller is being compiled by XLA, which needs its own kind of barrier.
    """
    if mode == "shared":
        from train.model.shared import shared_block

        return shared_block(x, layers, form, dropout=dropout, compiled=compiled)
    maps, inner = x, []
    for index, units in enumerate(layers):
        place = dropout.at(index)

        def run(maps: tf.Tensor, *weights: tf.Tensor, place: Dropout = place) -> tuple[tf.Tensor, ...]:
            return _run_layer(maps, weights, form, place)

        flat = [tensor for unit in units for tensor in unit]
        made, *between = (run if mode == "plain" else tf.recompute_grad(run))(maps, *flat)
        inner += [Statistics(*between)] if between else []
        maps = tf.concat([maps, made], axis=form.axis)
    normal, statistics = standardize(maps, form)
    return Block(normal, (statistics,), tuple(inner))


def dense_block_inference(
    x: tf.Tensor, layers: Sequence[Layer], features: Statistics, inner: Sequence[Statistics], form: Formulation
) -> tf.Tensor:
    """Run a dense block by given statistics; returns all maps, normalised but not yet scaled."""
    axis = form.axis
    normal = _standardize_by(x, Statistics(*(part[: x.shape[axis]] for part in features)), form)
    for index, (first, *rest) in enumerate(layers):
        made = convolve(tf.nn.relu(scale_shift(normal, first.gamma, first.beta, form)), first.kernel, form)
        for unit in rest:
            between = apply_statistics(made, unit.gamma, unit.beta, inner[index], form)
            made = convolve(tf.nn.relu(between), unit.kernel, form)
        start = normal.shape[axis]
        place = Statistics(*(part[start : start + made.shape[axis]] for part in features))
        normal = tf.concat([normal, _standardize_by(made, place, form)], axis=axis)
    return normal


def _run_layer(
    maps: tf.Tensor, weights: Sequence[tf.Tensor], form: Formulation, dropout: Dropout
) -> tuple[tf.Tensor, ...]:
    """One layer in training: its new maps, then mean and variance between its convolutions if it has two."""
    units = [Unit(*weights[start : start + 3]) for start in range(0, len(weights), 3)]
    made, between = maps, ()
    for index, unit in enumerate(units):
        normal, statistics, _ = normalize(made, unit.gamma, unit.beta, form)
        between = tuple(statistics) if index else ()
        made = dropout.at(index).apply(convolve(tf.nn.relu(normal), unit.kernel, form), form)
    return made, *between


def _standardize_by(x: tf.Tensor, statistics: Statistics, form: Formulation) -> tf.Tensor:
    scale = tf.math.rsqrt(statistics.variance + EPSILON)
    return scale_shift(x, scale, -statistics.mean * scale, form)
