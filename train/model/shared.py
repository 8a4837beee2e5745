"""The dense block with shared statistics: one set of normalised maps, one of their gradients.

Within a block every reader of a map normalises it over the same batch, so mean and variance of a map are computed once,
when it is made, not by every later layer again (which would be O(depth²) passes). Each layer scales, shifts and
rectifies the maps before it, and does so again in the backward pass instead of keeping the result. What the statistics
owe to the gradient is the same for all readers too, so it is added once for each map, when G is complete:

    dx = rsqrt(variance + epsilon) (G - mean(G) - xhat mean(G xhat)),   G = sum over readers of gamma * dz

In the backward pass maps and gradients shrink from layer to layer, so that at its start, where memory is highest,
nothing is kept twice. Both lie in two parts, see ``train.model.gathering``.

Sources of the parts: recomputation after Pleiss et al. (arXiv 1707.06990); the gradient of the norm from Ioffe and
Szegedy (arXiv 1502.03167).
"""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from train.model.block import Block, Layer, Unit
from train.model.convolution import convolve, convolve_gradient
from train.model.gathering import Gathering, Parts, join
from train.model.normalization import (
    Saved,
    Statistics,
    apply_statistics,
    bias,
    normalize,
    normalize_gradient,
    rsqrt,
    scale_shift,
    scale_shift_gradient,
    standardize,
    standardize_gradient,
)
from train.model.randomness import Dropout


def shared_block(x: tf.Tensor, layers: Sequence[Layer], *, dropout: Dropout, compiled: bool) -> Block:
    """Run a dense block in training with shared statistics; arguments as of ``dense_block``."""
    widths = [len(units) for units in layers]

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def run(x: tf.Tensor, *weights: tf.Tensor) -> tuple[Any, Callable[..., list[tf.Tensor]]]:
        units = [Unit(*weights[start : start + 3]) for start in range(0, len(weights), 3)]
        grouped = [units[sum(widths[:i]) : sum(widths[: i + 1])] for i in range(len(widths))]
        forward = _Forward(x, grouped, dropout)

        def differentiate(upstream: tf.Tensor, *_: tf.Tensor) -> list[tf.Tensor]:
            # Nobody differentiates by the running averages, so the statistics' own upstream gradients are void.
            return forward.differentiate(upstream, compiled=compiled)

        return forward.results, differentiate

    flat = [tf.convert_to_tensor(tensor) for units in layers for unit in units for tensor in unit]
    maps, mean, variance, *between = run(x, *flat)
    inner = tuple(Statistics(*between[start : start + 2]) for start in range(0, len(between), 2))
    return Block(maps, Statistics(mean, variance), inner)


class _Forward:
    """The forward pass of one block, and what its backward pass needs of it."""

    def __init__(self, x: tf.Tensor, layers: Sequence[Layer], dropout: Dropout) -> None:
        self.layers, self.dropout = layers, dropout
        self.gathering = Gathering(first=x.shape[-1], growth=layers[0][-1].kernel.shape[-1])
        self.readers: list[list[Unit]] = []  # each layer's first unit, cut as the maps are
        self.made: list[tuple[tf.Tensor, ...]] = []  # between a layer's convolutions: kept, it is narrow
        self.inner: list[tuple[Statistics, Saved]] = []
        self.scales: list[tf.Tensor] = []
        normal, statistics = standardize(x)
        features, maps = [statistics], [normal]
        self.scales.append(rsqrt(x, statistics))
        for index, units in enumerate(layers):
            made = self._run_layer(index, units, maps)
            normal, statistics = standardize(made)
            features.append(statistics)
            self.scales.append(rsqrt(made, statistics))
            maps = self.gathering.append(maps, normal, index)
        self.maps = join(maps)
        mean, variance = (tf.concat(parts, axis=0) for parts in zip(*features, strict=True))
        between = [tensor for statistics, _ in self.inner for tensor in statistics]
        self.results = (self.maps, mean, variance, *between)

    def _run_layer(self, index: int, units: Layer, maps: Parts) -> tf.Tensor:
        place = self.dropout.at(index)
        first, *rest = units
        readers = _cut(first, self.gathering.measure(index))
        self.readers.append(readers)
        parts = [convolve(_rectify(x, unit), unit.kernel) for x, unit in zip(maps, readers, strict=True)]
        made = place.at(0).apply(sum(parts[1:], parts[0]))
        self.made.append((made,) if rest else ())
        for unit in rest:
            normal, statistics, saved = normalize(made, unit.gamma, unit.beta)
            self.inner.append((statistics, saved))
            made = place.at(1).apply(convolve(tf.nn.relu(normal), unit.kernel))
        return made

    def differentiate(self, upstream: tf.Tensor, *, compiled: bool) -> list[tf.Tensor]:
        """Gradients of x and of all weights, from the gradient of the normalised maps."""
        wait = _wait_compiled if compiled else _wait
        count = len(self.layers)
        *gradients, recent = self.gathering.split(upstream, count)
        recent, (maps,) = wait(recent, [self.maps])
        gradients, parts = [*gradients, recent], self.gathering.split(maps, count)
        weights: list[tf.Tensor] = []
        for index in reversed(range(count)):
            gradients, made = self.gathering.take_last(gradients, index)
            made, (long, recent, *kept) = wait(made, [*parts, *self.made[index]])
            parts, normal = self.gathering.take_last([long, recent], index)
            made = standardize_gradient(made, normal, self.scales[index + 1])
            d_maps, d_units = self._differentiate_layer(index, parts, kept, made)
            gradients = [gradient + part for gradient, part in zip(gradients, d_maps, strict=True)]
            weights = d_units + weights
        return [standardize_gradient(gradients[0], parts[0], self.scales[0]), *weights]

    def _differentiate_layer(
        self, index: int, maps: Parts, kept: Sequence[tf.Tensor], made: tf.Tensor
    ) -> tuple[Parts, list[tf.Tensor]]:
        """Gradients of the maps that a layer read and of its weights, from the gradient of the map that it made."""
        place = self.dropout.at(index)
        weights: list[tf.Tensor] = []
        for unit in self.layers[index][1:]:
            (between,), (statistics, saved) = kept, self.inner[index]
            rectified = tf.nn.relu(apply_statistics(between, unit.gamma, unit.beta, bias(between, statistics)))
            d_normal, d_kernel = _differentiate_convolution(rectified, unit.kernel, place.at(1).apply(made))
            made, d_gamma, d_beta = normalize_gradient(d_normal, between, unit.gamma, statistics, saved)
            weights = [d_gamma, d_beta, d_kernel]
        made = place.at(0).apply(made)
        parts = []
        for x, unit in zip(maps, self.readers[index], strict=True):
            d_normal, d_kernel = _differentiate_convolution(_rectify(x, unit), unit.kernel, made)
            parts.append((*scale_shift_gradient(d_normal, x, unit.gamma), d_kernel))
        d_maps, d_gammas, d_betas, d_kernels = map(list, zip(*parts, strict=True))
        return d_maps, [join(d_gammas), join(d_betas), join(d_kernels, axis=2), *weights]


def _cut(unit: Unit, channels: Sequence[int]) -> list[Unit]:
    """A unit as one for each part of the maps that it reads."""
    if len(channels) == 1:
        return [unit]
    gamma, beta, kernel = (tf.split(weight, channels, axis) for weight, axis in zip(unit, (0, 0, 2), strict=True))
    return [Unit(*parts) for parts in zip(gamma, beta, kernel, strict=True)]


def _rectify(x: tf.Tensor, unit: Unit) -> tf.Tensor:
    return tf.nn.relu(scale_shift(x, unit.gamma, unit.beta))


def _differentiate_convolution(
    rectified: tf.Tensor, kernel: tf.Tensor, upstream: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Gradients of a convolution of a rectified map: before the ReLU, and of the kernel."""
    d_rectified, d_kernel = convolve_gradient(upstream, rectified, kernel)
    return tf.raw_ops.ReluGrad(gradients=d_rectified, features=rectified), d_kernel


def _wait(gradient: tf.Tensor, tensors: list[tf.Tensor]) -> tuple[tf.Tensor, list[tf.Tensor]]:
    """Hold saved tensors back until the gradient is there.

    Without it the executor recomputes as soon as it can, in the forward pass, and all is kept after all.
    """
    with tf.control_dependencies([gradient]):
        return gradient, [tf.identity(tensor) for tensor in tensors]


def _wait_compiled(gradient: tf.Tensor, tensors: list[tf.Tensor]) -> tuple[tf.Tensor, list[tf.Tensor]]:
    """The same inside XLA, which ignores control dependencies and would merge the recomputation with the original."""
    from tensorflow.compiler.tf2xla.ops import gen_xla_ops

    *held, gradient = gen_xla_ops.xla_optimization_barrier(input=[*tensors, gradient])
    return gradient, held
