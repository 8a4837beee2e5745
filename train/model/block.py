"""Computes a dense block as a pure function, in three memory modes that give the same numbers.

A layer reads all earlier maps of its block and adds `growth` maps. It is norm, ReLU and convolution, once (3x3) or
twice (1x1, then 3x3) (Huang et al., arXiv 1608.06993). Keeping every intermediate result takes memory that grows with
the square of the depth (Pleiss et al., arXiv 1707.06990). The modes:

- ``plain`` keeps everything. It is the reference; TensorFlow differentiates it.
- ``recompute`` keeps the input and output of each layer and runs the layer again in the backward pass.
- ``shared`` keeps one buffer of normalised maps and one of their gradients.

In ``shared``, the mean and variance of a map are computed once, because all its readers use the same batch. Each layer
scales, shifts and rectifies the maps before it, and does so again in the backward pass. The part of the gradient that
comes from the statistics is the same for all readers, so it is added once for each map:

    dx = rsqrt(variance + epsilon) (G - mean(G) - xhat mean(G xhat)),   G = sum over readers of gamma * dz

(Ioffe and Szegedy, arXiv 1502.03167.) Subtracting the two means is linear in G. With ``project_in_readers``, each
reader therefore subtracts them from its own share gamma * dz. In the backward pass, the buffers of maps and gradients
shrink from layer to layer. So nothing is stored twice at its start, where memory use is highest.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, cast

import tensorflow as tf

from train.model import EPSILON
from train.model.formulation import Formulation
from train.model.normalization import (
    Saved,
    Statistics,
    apply_statistics,
    normalize,
    normalize_gradient,
    rsqrt,
    scale_by_deviation,
    scale_shift,
    scale_shift_gradient,
    standardize,
    standardize_gradient,
    with_biased_variance,
)
from train.model.randomness import Dropout
from train.native import operations

Mode = Literal["plain", "recompute", "shared"]


class Unit(NamedTuple):
    """One norm-ReLU-convolution: scale and shift (inputs,), kernel (height, width, inputs, outputs)."""

    gamma: tf.Tensor
    beta: tf.Tensor
    kernel: tf.Tensor


Layer = Sequence[Unit]
"""One unit, or two with bottleneck."""


class Block(NamedTuple):
    """The result of a dense block."""

    maps: tf.Tensor  # all maps, normalised but not scaled, because each reader scales them by its own norm
    features: tuple[Statistics, ...]  # of all maps before they were normalised, in consecutive pieces
    inner: tuple[Statistics, ...]  # with bottleneck, for each layer those between its two convolutions


def dense_block(
    x: tf.Tensor,
    layers: Sequence[Layer],
    mode: Mode,
    form: Formulation,
    *,
    dropout: Dropout,
    compiled: bool = False,
) -> Block:
    """Run a dense block in training, with the statistics of the batch.

    `mode` chooses what is kept for the backward pass; it does not change the result. `compiled` means that XLA compiles
    the caller, which needs another kind of barrier.
    """
    if form.native:
        return _run_native(x, layers, dropout)
    if mode == "shared":
        return _run_shared(x, layers, form, dropout=dropout, compiled=compiled)
    maps, inner = x, []
    for index, units in enumerate(layers):
        masks = dropout.at(index)

        def run(maps: tf.Tensor, *weights: tf.Tensor, masks: Dropout = masks) -> tuple[tf.Tensor, ...]:
            return _run_layer(maps, weights, form, masks)

        flat = [tf.convert_to_tensor(tensor) for unit in units for tensor in unit]
        new, *between = (run if mode == "plain" else _recompute(run, compiled=compiled))(maps, *flat)
        inner += [Statistics(*between)] if between else []
        maps = tf.concat([maps, new], axis=form.axis)
    normal, statistics = standardize(maps, form)
    return Block(normal, (statistics,), tuple(inner))


_LayerFunction = Callable[..., tuple[tf.Tensor, ...]]


def _recompute(run: _LayerFunction, *, compiled: bool) -> _LayerFunction:
    """Wrap a function so that its gradient runs it again, instead of keeping intermediate results.

    In a graph, ``tf.recompute_grad`` delays the second run by adding a zero, computed from the gradient, to each input.
    That copies all maps for each layer, and is a third of all launches on a GPU.
    """
    if tf.executing_eagerly():
        return cast("_LayerFunction", tf.recompute_grad(run))

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def forward(*inputs: tf.Tensor) -> Any:
        def differentiate(*upstream: tf.Tensor) -> list[tf.Tensor]:
            first, delayed = (_wait_compiled if compiled else _wait)(upstream[0], list(inputs))
            with tf.GradientTape() as tape:
                tape.watch(delayed)
                results = run(*delayed)
            gradients: list[tf.Tensor] = tape.gradient(
                results, delayed, [first, *upstream[1:]], unconnected_gradients=tf.UnconnectedGradients.ZERO
            )
            return gradients

        return run(*inputs), differentiate

    return cast("_LayerFunction", forward)


def dense_block_inference(
    x: tf.Tensor, layers: Sequence[Layer], features: Statistics, inner: Sequence[Statistics], form: Formulation
) -> tf.Tensor:
    """Run a dense block with given statistics; returns all maps, normalised but not scaled."""
    if form.native:
        between = [tf.stack(parts) for parts in zip(*inner, strict=True)] or [tf.zeros([0, 0])] * 2
        return operations.infer_block(x, _flatten(layers), [*features, *between])
    axis = form.axis
    normal = _standardize_by(x, Statistics(*(part[: x.shape[axis]] for part in features)), form)
    for index, (first, *rest) in enumerate(layers):
        new = convolve(tf.nn.relu(scale_shift(normal, first.gamma, first.beta, form)), first.kernel, form)
        for unit in rest:
            between = apply_statistics(new, unit.gamma, unit.beta, inner[index], form)
            new = convolve(tf.nn.relu(between), unit.kernel, form)
        start = normal.shape[axis]
        statistics = Statistics(*(part[start : start + new.shape[axis]] for part in features))
        normal = tf.concat([normal, _standardize_by(new, statistics, form)], axis=axis)
    return normal


def _run_native(x: tf.Tensor, layers: Sequence[Layer], dropout: Dropout) -> Block:
    results = operations.run_block(x, _flatten(layers), rate=dropout.rate, seed=dropout.numbers)
    maps, *features, inner_mean, inner_variance = results
    inner = zip(tf.unstack(inner_mean), tf.unstack(inner_variance), strict=True)
    return Block(maps, (Statistics(*features),), tuple(Statistics(*pair) for pair in inner))


def _flatten(layers: Sequence[Layer]) -> list[tf.Tensor]:
    return [tf.convert_to_tensor(tensor) for units in layers for unit in units for tensor in unit]


def _run_layer(
    maps: tf.Tensor, weights: Sequence[tf.Tensor], form: Formulation, dropout: Dropout
) -> tuple[tf.Tensor, ...]:
    units = [Unit(*weights[start : start + 3]) for start in range(0, len(weights), 3)]
    new, between = maps, ()
    for index, unit in enumerate(units):
        normal, statistics, _ = normalize(new, unit.gamma, unit.beta, form)
        between = tuple(statistics) if index else ()
        new = dropout.at(index).apply(convolve(tf.nn.relu(normal), unit.kernel, form), form)
    return new, *between


def _standardize_by(x: tf.Tensor, statistics: Statistics, form: Formulation) -> tf.Tensor:
    scale = tf.math.rsqrt(statistics.variance + EPSILON)
    return scale_shift(x, scale, -statistics.mean * scale, form)


Parts = list[tf.Tensor]
"""Maps: the long part, then the short one if there is one."""


@dataclass(frozen=True, kw_only=True)
class SegmentedMaps:
    """The maps of a block in two parts, so that adding maps does not copy all the others.

    A buffer that grows by concatenation is copied for each layer, which moves O(depth²) channels. Here new maps are
    gathered in a short part, which joins the long one every few layers. Scale, shift and ReLU apply to each part, and a
    convolution is the sum of the parts' convolutions. On a GPU, copies are cheap and each operation on a second part is
    one more launch, so all maps are in one part.
    """

    first: int  # channels that the block starts from
    growth: int  # channels that each layer adds
    form: Formulation  # its `gathered` is the number of layers in the short part; 0 means that there is none

    def list_channels(self, layers: int) -> list[int]:
        """Return the channels of each part after so many layers."""
        recent = (layers - 1) % self.form.gathered + 1 if layers and self.form.gathered else 0
        parts = [self.first + (layers - recent) * self.growth, recent * self.growth]
        return parts if recent else parts[:1]

    def split(self, maps: tf.Tensor, layers: int) -> Parts:
        parts = self.list_channels(layers)
        return list(tf.split(maps, parts, axis=self.form.axis)) if len(parts) > 1 else [maps]

    def append(self, parts: Parts, new: tf.Tensor, layers: int) -> Parts:
        """Add a layer's maps to the parts, which hold the maps of so many earlier layers."""
        axis = self.form.axis
        if not self.form.gathered:
            return [join([*parts, new], axis)]
        if layers % self.form.gathered == 0:
            return [join(parts, axis), new]
        long, recent = parts
        return [long, join([recent, new], axis)]

    def take_last(self, parts: Parts, layers: int) -> tuple[Parts, tf.Tensor]:
        """Undo `append`: return the parts as they were after so many layers, and the maps of the next layer."""
        axis = self.form.axis
        if not self.form.gathered:
            # Slices, because a split would copy both parts, although the last is not always needed.
            (maps,) = parts
            end = maps.shape[axis] - self.growth
            if self.form.channels_first:
                return [maps[:, :end]], maps[:, end:]
            return [maps[..., :end]], maps[..., end:]
        if layers % self.form.gathered == 0:
            long, recent = parts
            return self.split(long, layers), recent
        long, recent = parts
        recent, last = tf.split(recent, [recent.shape[axis] - self.growth, self.growth], axis=axis)
        return [long, recent], last


def join(parts: Sequence[tf.Tensor], axis: int) -> tf.Tensor:
    return tf.concat(parts, axis=axis) if len(parts) > 1 else parts[0]


def _run_shared(x: tf.Tensor, layers: Sequence[Layer], form: Formulation, *, dropout: Dropout, compiled: bool) -> Block:
    widths = [len(units) for units in layers]

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def run(x: tf.Tensor, *weights: tf.Tensor) -> tuple[Any, Callable[..., list[tf.Tensor]]]:
        units = [Unit(*weights[start : start + 3]) for start in range(0, len(weights), 3)]
        grouped = [units[sum(widths[:i]) : sum(widths[: i + 1])] for i in range(len(widths))]
        forward = _Forward(x, grouped, form, dropout)

        def differentiate(upstream: tf.Tensor, *_: tf.Tensor) -> list[tf.Tensor]:
            # The loss does not use the returned statistics, so their upstream gradients are ignored.
            return forward.differentiate(upstream, compiled=compiled)

        return forward.results, differentiate

    maps, *moments = run(x, *_flatten(layers))
    statistics = [Statistics(*moments[start : start + 2]) for start in range(0, len(moments), 2)]
    features = len(layers) + 1
    return Block(maps, tuple(statistics[:features]), tuple(statistics[features:]))


class _Forward:
    def __init__(self, x: tf.Tensor, layers: Sequence[Layer], form: Formulation, dropout: Dropout) -> None:
        self.layers, self.form, self.dropout = layers, form, dropout
        growth = layers[0][-1].kernel.shape[-1]
        self.gathering = SegmentedMaps(first=x.shape[form.axis], growth=growth, form=form)
        self.readers: list[list[Unit]] = []  # each layer's first unit, split like the maps
        self.between: list[tuple[tf.Tensor, ...]] = []  # maps between a layer's convolutions: few, so they are kept
        self.inner: list[tuple[Statistics, Saved]] = []
        self.features: list[Statistics] = []
        self.scales: list[tf.Tensor] = []
        maps = [self._standardize(x)]
        for index, units in enumerate(layers):
            new = self._run_layer(index, units, maps)
            maps = self.gathering.append(maps, self._standardize(new), index)
        self.maps = join(maps, form.axis)
        statistics = [*self.features, *(between for between, _ in self.inner)]
        self.results = (self.maps, *(tensor for pair in statistics for tensor in pair))

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
        masks, form = self.dropout.at(index), self.form
        first, *rest = units
        readers = _cut(first, self.gathering.list_channels(index))
        self.readers.append(readers)
        parts = [convolve(self._rectify(x, unit), unit.kernel, form) for x, unit in zip(maps, readers, strict=True)]
        new = masks.at(0).apply(sum(parts[1:], parts[0]), form)
        self.between.append((new,) if rest else ())
        for unit in rest:
            normal, statistics, saved = normalize(new, unit.gamma, unit.beta, form)
            self.inner.append((statistics, saved))
            new = masks.at(1).apply(convolve(tf.nn.relu(normal), unit.kernel, form), form)
        return new

    def differentiate(self, upstream: tf.Tensor, *, compiled: bool) -> list[tf.Tensor]:
        """Return the gradients of x and of all weights, from the gradient of the normalised maps."""
        wait = _wait_compiled if compiled else _wait
        count = len(self.layers)
        *gradients, recent = self.gathering.split(upstream, count)
        recent, (maps,) = wait(recent, [self.maps])
        gradients, parts = [*gradients, recent], self.gathering.split(maps, count)
        weights: list[tf.Tensor] = []
        for index in reversed(range(count)):
            gradients, last = self.gathering.take_last(gradients, index)
            last, delayed = wait(last, [*parts, *self.between[index]])
            parts, normal = self.gathering.take_last(delayed[: len(parts)], index)
            kept = delayed[len(delayed) - len(self.between[index]) :]
            last = self._differentiate_standardize(index + 1, last, normal)
            d_maps, d_units = self._differentiate_layer(index, parts, kept, last)
            gradients = [gradient + part for gradient, part in zip(gradients, d_maps, strict=True)]
            weights = d_units + weights
        return [self._differentiate_standardize(0, gradients[0], parts[0]), *weights]

    def _differentiate_layer(
        self, index: int, maps: Parts, kept: Sequence[tf.Tensor], gradient: tf.Tensor
    ) -> tuple[Parts, list[tf.Tensor]]:
        masks, form = self.dropout.at(index), self.form
        weights: list[tf.Tensor] = []
        for unit in self.layers[index][1:]:
            (between,), (statistics, saved) = kept, self.inner[index]
            biased = with_biased_variance(between, statistics, form)
            rectified = tf.nn.relu(apply_statistics(between, unit.gamma, unit.beta, biased, form))
            d_between = masks.at(1).apply(gradient, form)
            d_normal, d_kernel = self._differentiate_convolution(rectified, unit.kernel, d_between)
            gradient, d_gamma, d_beta = normalize_gradient(d_normal, between, unit.gamma, statistics, saved, form=form)
            weights = [d_gamma, d_beta, d_kernel]
        gradient = masks.at(0).apply(gradient, form)
        parts = []
        for x, unit in zip(maps, self.readers[index], strict=True):
            d_normal, d_kernel = self._differentiate_convolution(self._rectify(x, unit), unit.kernel, gradient)
            parts.append((*scale_shift_gradient(d_normal, x, unit.gamma, form), d_kernel))
        d_maps, d_gammas, d_betas, d_kernels = map(list, zip(*parts, strict=True))
        return d_maps, [join(d_gammas, 0), join(d_betas, 0), join(d_kernels, 2), *weights]

    def _rectify(self, x: tf.Tensor, unit: Unit) -> tf.Tensor:
        return tf.nn.relu(scale_shift(x, unit.gamma, unit.beta, self.form))

    def _differentiate_convolution(
        self, rectified: tf.Tensor, kernel: tf.Tensor, upstream: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        d_rectified, d_kernel = convolve_gradient(upstream, rectified, kernel, self.form)
        return tf.raw_ops.ReluGrad(gradients=d_rectified, features=rectified), d_kernel


def _cut(unit: Unit, channels: Sequence[int]) -> list[Unit]:
    if len(channels) == 1:
        return [unit]
    gamma, beta, kernel = (tf.split(weight, channels, axis) for weight, axis in zip(unit, (0, 0, 2), strict=True))
    return [Unit(*parts) for parts in zip(gamma, beta, kernel, strict=True)]


def _wait(gradient: tf.Tensor, tensors: list[tf.Tensor]) -> tuple[tf.Tensor, list[tf.Tensor]]:
    """Delay the use of saved tensors until the gradient is computed.

    Otherwise the executor recomputes as early as it can, during the forward pass, and keeps everything after all.
    """
    with tf.control_dependencies([gradient]):
        return gradient, [tf.identity(tensor) for tensor in tensors]


def _wait_compiled(gradient: tf.Tensor, tensors: list[tf.Tensor]) -> tuple[tf.Tensor, list[tf.Tensor]]:
    """Do as `_wait` inside XLA, which ignores control dependencies and would merge the second run with the first."""
    from tensorflow.compiler.tf2xla.ops import gen_xla_ops

    *delayed, gradient = gen_xla_ops.xla_optimization_barrier(input=[*tensors, gradient])
    return gradient, delayed


def convolve(x: tf.Tensor, kernel: tf.Tensor, form: Formulation) -> tf.Tensor:
    """Convolve x with a kernel (size, size, inputs, outputs), in the dtype of x. Padding keeps the size.

    A 1x1 convolution is a product of matrices, which is faster on a CPU.
    """
    kernel = tf.cast(kernel, x.dtype)
    if _is_product(kernel, form):
        return tf.tensordot(x, kernel[0, 0], axes=1)
    return tf.nn.conv2d(x, kernel, strides=1, padding="SAME", data_format=form.data_format)


def convolve_gradient(dy: tf.Tensor, x: tf.Tensor, kernel: tf.Tensor, form: Formulation) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the gradients of `convolve` for x, in the dtype of x, and for the kernel, in the kernel's dtype."""
    narrow = tf.cast(kernel, x.dtype)
    # One after the other, so that x is freed before d_x is allocated, if nothing else reads x.
    if _is_product(kernel, form):
        d_kernel = tf.matmul(_flatten_pixels(x), _flatten_pixels(dy), transpose_a=True)
        with tf.control_dependencies([d_kernel]):
            d_x = tf.tensordot(dy, tf.transpose(narrow[0, 0]), axes=1)
    else:
        options = {
            "out_backprop": dy,
            "strides": [1, 1, 1, 1],
            "padding": "SAME",
            "data_format": form.data_format,
        }
        d_kernel = tf.raw_ops.Conv2DBackpropFilter(input=x, filter_sizes=kernel.shape, **options)
        with tf.control_dependencies([d_kernel]):
            d_x = tf.raw_ops.Conv2DBackpropInput(input_sizes=tf.shape(x), filter=narrow, **options)
    return d_x, tf.cast(tf.reshape(d_kernel, kernel.shape), kernel.dtype)


def _is_product(kernel: tf.Tensor, form: Formulation) -> bool:
    return form.pointwise_as_product and bool(kernel.shape[:2] == (1, 1))


def _flatten_pixels(x: tf.Tensor) -> tf.Tensor:
    return tf.reshape(x, [-1, x.shape[-1]])
