"""The dense block with shared statistics: one set of normalised maps, one of their gradients.

Within a block every reader of a map normalises it over the same batch, so mean and variance of a map are computed once,
when it is made, not by every later layer again (which would be O(depth²) passes). Each layer scales, shifts and
rectifies the maps before it, and does so again in the backward pass instead of keeping the result. What the statistics
owe to the gradient is the same for all readers too, so it is added once for each map, when G is complete:

    dx = rsqrt(variance + epsilon) (G - mean(G) - xhat mean(G xhat)),   G = sum over readers of gamma * dz

In the backward pass maps and gradients shrink from layer to layer, so that at its start, where memory is highest,
nothing is kept twice. Both lie in two parts, see ``train.model.gathering``.

The subtraction of the two means is linear in G. So the readers may each do it to their own share gamma * dz instead,
which is what they do where the formulation says so.

Sources of the parts: recomputation after Pleiss et al. (arXiv 1707.06990); the gradient of the norm from Ioffe and
Szegedy (arXiv 1502.03167).
"""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from train.model.block import Block, Layer, Unit
from train.model.convolution import convolve, convolve_gradient
from train.model.formulation import Formulation
from train.model.gathering import Gathering, Parts, join
from train.model.normalization import (
    Saved,
    Statistics,
    apply_statistics,
    bias,
    normalize,
    normalize_gradient,
    rsqrt,
    scale_by_deviation,
    scale_shift,
    scale_shift_gradient,
    standardize,
    standardize_gradient,
)
from train.model.randomness import Dropout


def shared_block(
    x: tf.Tensor, layers: Sequence[Layer], form: Formulation, *, dropout: Dropout, compiled: bool
) -> Block:
    """Run a dense block in training with shared statistics; arguments as of ``dense_block``."""
    widths = [len(units) for units in layers]

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def run(x: tf.Tensor, *weights: tf.Tensor) -> tuple[Any, Callable[..., list[tf.Tensor]]]:
        units = [Unit(*weights[start : start + 3]) for start in range(0, len(weights), 3)]
        grouped = [units[sum(widths[:i]) : sum(widths[: i + 1])] for i in range(len(widths))]
        forward = _Forward(x, grouped, form, dropout)

        def differentiate(upstream: tf.Tensor, *_: tf.Tensor) -> list[tf.Tensor]:
            # Nobody differentiates by the running averages, so the statistics' own upstream gradients are void.
            return forward.differentiate(upstream, compiled=compiled)

        return forward.results, differentiate

    flat = [tf.convert_to_tensor(tensor) for units in layers for unit in units for tensor in unit]
    maps, *found = run(x, *flat)
    statistics = [Statistics(*found[start : start + 2]) for start in range(0, len(found), 2)]
    features = len(layers) + 1
    return Block(maps, tuple(statistics[:features]), tuple(statistics[features:]))


class _Forward:
    """The forward pass of one block, and what its backward pass needs of it."""

    def __init__(self, x: tf.Tensor, layers: Sequence[Layer], form: Formulation, dropout: Dropout) -> None:
        self.layers, self.form, self.dropout = layers, form, dropout
        growth = layers[0][-1].kernel.shape[-1]
        self.gathering = Gathering(first=x.shape[form.axis], growth=growth, form=form)
        self.readers: list[list[Unit]] = []  # each layer's first unit, cut as the maps are
        self.made: list[tuple[tf.Tensor, ...]] = []  # between a layer's convolutions: kept, it is narrow
        self.inner: list[tuple[Statistics, Saved]] = []
        self.features: list[Statistics] = []
        self.scales: list[tf.Tensor] = []
        maps = [self._standardize(x)]
        for index, units in enumerate(layers):
            made = self._run_layer(index, units, maps)
            maps = self.gathering.append(maps, self._standardize(made), index)
        self.maps = join(maps, form.axis)
        statistics = [*self.features, *(between for between, _ in self.inner)]
        self.results = (self.maps, *(tensor for each in statistics for tensor in each))

    def _standardize(self, x: tf.Tensor) -> tf.Tensor:
        normal, statistics = standardize(x, self.form)
        self.features.append(statistics)
        if not self.form.project_in_readers:
            self.scales.append(rsqrt(x, statistics, self.form))
        return normal

    def _differentiate_standardize(self, index: int, dy: tf.Tensor, normal: tf.Tensor) -> tf.Tensor:
        if self.form.project_in_readers:
            return scale_by_deviation(dy, self.features[index], self.form)
        return standardize_gradient(dy, normal, self.scales[index], self.form)

    def _run_layer(self, index: int, units: Layer, maps: Parts) -> tf.Tensor:
        place, form = self.dropout.at(index), self.form
        first, *rest = units
        readers = _cut(first, self.gathering.measure(index))
        self.readers.append(readers)
        parts = [convolve(self._rectify(x, unit), unit.kernel, form) for x, unit in zip(maps, readers, strict=True)]
        made = place.at(0).apply(sum(parts[1:], parts[0]), form)
        self.made.append((made,) if rest else ())
        for unit in rest:
            normal, statistics, saved = normalize(made, unit.gamma, unit.beta, form)
            self.inner.append((statistics, saved))
            made = place.at(1).apply(convolve(tf.nn.relu(normal), unit.kernel, form), form)
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
            made, held = wait(made, [*parts, *self.made[index]])
            parts, normal = self.gathering.take_last(held[: len(parts)], index)
            kept = held[len(held) - len(self.made[index]) :]
            made = self._differentiate_standardize(index + 1, made, normal)
            d_maps, d_units = self._differentiate_layer(index, parts, kept, made)
            gradients = [gradient + part for gradient, part in zip(gradients, d_maps, strict=True)]
            weights = d_units + weights
        return [self._differentiate_standardize(0, gradients[0], parts[0]), *weights]

    def _differentiate_layer(
        self, index: int, maps: Parts, kept: Sequence[tf.Tensor], made: tf.Tensor
    ) -> tuple[Parts, list[tf.Tensor]]:
        """Gradients of the maps that a layer read and of its weights, from the gradient of the map that it made."""
        place, form = self.dropout.at(index), self.form
        weights: list[tf.Tensor] = []
        for unit in self.layers[index][1:]:
            (between,), (statistics, saved) = kept, self.inner[index]
            known = bias(between, statistics, form)
            rectified = tf.nn.relu(apply_statistics(between, unit.gamma, unit.beta, known, form))
            d_between = place.at(1).apply(made, form)
            d_normal, d_kernel = self._differentiate_convolution(rectified, unit.kernel, d_between)
            made, d_gamma, d_beta = normalize_gradient(d_normal, between, unit.gamma, statistics, saved, form=form)
            weights = [d_gamma, d_beta, d_kernel]
        made = place.at(0).apply(made, form)
        parts = []
        for x, unit in zip(maps, self.readers[index], strict=True):
            d_normal, d_kernel = self._differentiate_convolution(self._rectify(x, unit), unit.kernel, made)
            parts.append((*scale_shift_gradient(d_normal, x, unit.gamma, form), d_kernel))
        d_maps, d_gammas, d_betas, d_kernels = map(list, zip(*parts, strict=True))
        return d_maps, [join(d_gammas, 0), join(d_betas, 0), join(d_kernels, 2), *weights]

    def _rectify(self, x: tf.Tensor, unit: Unit) -> tf.Tensor:
        return tf.nn.relu(scale_shift(x, unit.gamma, unit.beta, self.form))

    def _differentiate_convolution(
        self, rectified: tf.Tensor, kernel: tf.Tensor, upstream: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Gradients of a convolution of a rectified map: before the ReLU, and of the kernel."""
        d_rectified, d_kernel = convolve_gradient(upstream, rectified, kernel, self.form)
        return tf.raw_ops.ReluGrad(gradients=d_rectified, features=rectified), d_kernel


def _cut(unit: Unit, channels: Sequence[int]) -> list[Unit]:
    """A unit as one for each part of the maps that it reads."""
    if len(channels) == 1:
        return [unit]
    gamma, beta, kernel = (tf.split(weight, channels, axis) for weight, axis in zip(unit, (0, 0, 2), strict=True))
    return [Unit(*parts) for parts in zip(gamma, beta, kernel, strict=True)]


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
