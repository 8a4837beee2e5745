"""Normalises batches by pure functions (Ioffe and Szegedy, arXiv 1502.03167), for every dtype.

In float32 and half precision they use the FusedBatchNormV3 operation. It makes one pass over the map and is repeatable
to the bit. Keras' mean and variance are not, with two inter-op threads. The operation has no float64 kernel, so float64
(which proves the gradients) computes the same formulas from moments.

On a CPU the fused operation adds all values of a channel one after the other. For 65,536 values, mean and variance lose
up to seven bits. Such an error moves some values across 0. A ReLU of such a value changes the gradient far more than
rounding does. For long sums, the operation therefore computes the statistics of each column of the maps, and these are
combined (Chan, Golub and LeVeque, "Algorithms for computing the sample variance", 1983). The statistics of shards that
run in lockstep are combined in the same way. They all have the same number of values.
"""

from functools import reduce
from operator import add
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from train.model import EPSILON
from train.model.formulation import Formulation
from train.native import operations


class Statistics(NamedTuple):
    """Mean and variance of each channel over batch, height and width: (channels,) each."""

    mean: tf.Tensor
    variance: tf.Tensor  # unbiased, which running averages collect; `with_biased_variance` converts it


class Saved(NamedTuple):
    """Tensors for the gradient of the fused operation: its reserved spaces, or mean and variance; none in float64."""

    spaces: tuple[tf.Tensor, ...]


class Gradients(NamedTuple):
    x: tf.Tensor
    gamma: tf.Tensor
    beta: tf.Tensor


def statistics_dtype(dtype: tf.DType) -> tf.DType:
    """Return the dtype of statistics: float32 for half precision too."""
    return tf.float64 if dtype == tf.float64 else tf.float32


def with_biased_variance(x: tf.Tensor, statistics: Statistics, form: Formulation) -> Statistics:
    """Return the statistics of map `x` with the biased variance, by which it is normalised."""
    return statistics._replace(variance=statistics.variance / _unbias(x, form))


def rsqrt(x: tf.Tensor, statistics: Statistics, form: Formulation) -> tf.Tensor:
    """Return 1 / sqrt(biased variance + epsilon) from the statistics of map `x`: (channels,)."""
    return tf.math.rsqrt(with_biased_variance(x, statistics, form).variance + EPSILON)


def normalize(
    x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor, form: Formulation
) -> tuple[tf.Tensor, Statistics, Saved]:
    """Normalise maps by the batch's own statistics, then scale by gamma and shift by beta, (channels,) each."""
    if form.lockstep:
        return _normalize_by_parts(x, gamma, beta, form)
    if x.dtype != tf.float64:
        if _has_long_sums(x, form):
            return _normalize_by_parts(x, gamma, beta, form)
        y, mean, variance, *spaces = _normalize_fused(x, gamma, beta, form)
        return y, Statistics(mean, variance), Saved(tuple(spaces))
    mean = tf.reduce_mean(x, form.reduced)
    centered = x - form.spread(mean)
    biased = tf.reduce_mean(tf.square(centered), form.reduced)
    y = centered * form.spread(tf.math.rsqrt(biased + EPSILON) * gamma) + form.spread(beta)
    return y, Statistics(mean, biased * _unbias(x, form)), Saved(())


def normalize_gradient(
    dy: tf.Tensor, x: tf.Tensor, gamma: tf.Tensor, statistics: Statistics, saved: Saved, *, form: Formulation
) -> Gradients:
    if form.lockstep:
        biased, ones = with_biased_variance(x, statistics, form), tf.ones_like(gamma)
        normal = apply_statistics(x, ones, 0 * ones, biased, form)
        return _differentiate_together(dy, normal, gamma * rsqrt(x, statistics, form), form)
    if saved.spaces:
        first, second, *third = saved.spaces
        options = {"reserve_space_3": third[0]} if third else {}
        operation = tf.raw_ops.FusedBatchNormGradV3 if third else tf.raw_ops.FusedBatchNormGradV2
        return Gradients(
            *operation(
                y_backprop=dy,
                x=x,
                scale=gamma,
                reserve_space_1=first,
                reserve_space_2=second,
                epsilon=EPSILON,
                data_format=form.data_format,
                is_training=True,
                **options,
            )[:3]
        )
    scale = rsqrt(x, statistics, form)
    normal = (x - form.spread(statistics.mean)) * form.spread(scale)
    dx, d_gamma, d_beta = _differentiate_by_moments(dy, normal, gamma, form)
    return Gradients(dx * form.spread(scale), d_gamma, d_beta)


def standardize(x: tf.Tensor, form: Formulation) -> tuple[tf.Tensor, Statistics]:
    """Normalise by the batch's own statistics, without scale and shift.

    TensorFlow or `standardize_gradient` differentiates it. With ``project_in_readers``, the upstream gradient is
    projected (the readers have subtracted the part of the statistics), so it only has to be scaled.
    """
    ones = np.ones(x.shape[form.axis], statistics_dtype(x.dtype).as_numpy_dtype)
    if not form.project_in_readers:
        normal, statistics, _ = normalize(x, tf.constant(ones), tf.constant(0 * ones), form)
        return normal, statistics

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def run(x: tf.Tensor) -> Any:
        normal, statistics, _ = normalize(x, tf.constant(ones), tf.constant(0 * ones), form)

        def differentiate(dy: tf.Tensor, *_: tf.Tensor) -> tf.Tensor:
            # The loss does not use the returned statistics, so their upstream gradients are ignored.
            return scale_by_deviation(dy, statistics, form)

        return (normal, *statistics), differentiate

    normal, mean, variance = run(x)
    return normal, Statistics(mean, variance)


def scale_by_deviation(dy: tf.Tensor, statistics: Statistics, form: Formulation) -> tf.Tensor:
    """Return the gradient of `standardize` from a projected gradient, by division by the deviation of x.

    A norm in inference does this in one operation. It gets the unbiased variance, with epsilon and scale to match.
    """
    if dy.dtype == tf.float64:
        return dy * form.spread(rsqrt(dy, statistics, form))
    zeros = np.zeros(dy.shape[form.axis], statistics_dtype(dy.dtype).as_numpy_dtype)
    ratio = _unbias(dy, form)
    if not isinstance(ratio, float):
        return apply_statistics(
            dy, zeros + 1, zeros, with_biased_variance(dy, statistics, form)._replace(mean=zeros), form
        )
    centered = Statistics(zeros, statistics.variance)
    return apply_statistics(dy, np.full_like(zeros, ratio**0.5), zeros, centered, form, epsilon=EPSILON * ratio)


def standardize_gradient(dy: tf.Tensor, normal: tf.Tensor, scale: tf.Tensor, form: Formulation) -> tf.Tensor:
    """Return the gradient of `standardize` for x, given its result and the `rsqrt` of its variance as scale."""
    if form.lockstep:
        return _differentiate_together(dy, normal, scale, form).x
    if normal.dtype == tf.float64:
        return _differentiate_by_moments(dy, normal, scale, form).x
    return _differentiate_known(dy, normal, scale, form, training=True).x


def apply_statistics(
    x: tf.Tensor,
    gamma: tf.Tensor,
    beta: tf.Tensor,
    statistics: Statistics,
    form: Formulation,
    *,
    epsilon: float = EPSILON,
) -> tf.Tensor:
    """Normalise by given statistics, then scale and shift: one pass, even with a ReLU, which the remapper fuses."""
    mean, variance = statistics
    if x.dtype == tf.float64:
        scale = tf.math.rsqrt(variance + epsilon) * gamma
        return (x - form.spread(mean)) * form.spread(scale) + form.spread(beta)
    return tf.raw_ops.FusedBatchNormV3(
        x=x,
        scale=gamma,
        offset=beta,
        mean=mean,
        variance=variance,
        epsilon=epsilon,
        data_format=form.data_format,
        is_training=False,
    )[0]


def scale_shift(x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor, form: Formulation) -> tf.Tensor:
    """Return x * gamma + beta by channel, in the dtype of x."""
    ones = np.ones(x.shape[form.axis], gamma.dtype.as_numpy_dtype)
    return apply_statistics(x, gamma, beta, Statistics(0 * ones, ones), form, epsilon=0.0)


def scale_shift_gradient(dy: tf.Tensor, x: tf.Tensor, gamma: tf.Tensor, form: Formulation) -> Gradients:
    """Return the gradients of `scale_shift` of normalised maps for x, gamma and beta.

    The gradient of a norm in inference, with mean 0 and variance 1, computes just this, in one pass instead of four.
    With ``project_in_readers``, the gradient of x is that of a norm in training. It then has no mean and no component
    along x, so the gradient of `standardize` need not subtract them.
    """
    if not form.project_in_readers and x.dtype == tf.float64:
        return Gradients(dy * form.spread(gamma), tf.reduce_sum(dy * x, form.reduced), tf.reduce_sum(dy, form.reduced))
    if x.dtype == tf.float64:
        return _differentiate_by_moments(dy, x, gamma, form)
    return _differentiate_known(dy, x, gamma, form, training=form.project_in_readers)


def scale_rectify(x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor, form: Formulation) -> tf.Tensor:
    """Return the ReLU of `scale_shift` of normalised maps; TensorFlow differentiates it."""
    if form.native:
        return operations.scale_rectify(x, gamma, beta)
    if not form.project_in_readers:
        return tf.nn.relu(scale_shift(x, gamma, beta, form))

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def run(x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor) -> Any:
        y = tf.nn.relu(scale_shift(x, gamma, beta, form))

        def differentiate(dy: tf.Tensor) -> Gradients:
            return scale_shift_gradient(tf.raw_ops.ReluGrad(gradients=dy, features=y), x, gamma, form)

        return y, differentiate

    return run(x, tf.convert_to_tensor(gamma), tf.convert_to_tensor(beta))


def _has_long_sums(x: tf.Tensor, form: Formulation) -> bool:
    count = _count(x, form)
    return form.longest_sum is not None and (not isinstance(count, float) or count > form.longest_sum)


def _normalize_fused(x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor, form: Formulation) -> list[tf.Tensor]:
    none = tf.zeros([0], gamma.dtype)
    return list(
        tf.raw_ops.FusedBatchNormV3(
            x=x,
            scale=gamma,
            offset=beta,
            mean=none,
            variance=none,
            epsilon=EPSILON,
            data_format=form.data_format,
            is_training=True,
        )
    )


def _normalize_by_parts(
    x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor, form: Formulation
) -> tuple[tf.Tensor, Statistics, Saved]:
    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def run(x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor) -> Any:
        mean, variance = _combine(x, form)
        y = apply_statistics(x, gamma, beta, Statistics(mean, variance), form)

        def differentiate(dy: tf.Tensor, *_: tf.Tensor) -> Gradients:
            # The loss does not use the returned statistics, so their upstream gradients are ignored.
            statistics = Statistics(mean, variance * _unbias(x, form))
            return normalize_gradient(dy, x, gamma, statistics, Saved((mean, variance)), form=form)

        return (y, mean, variance), differentiate

    y, mean, variance = run(x, tf.convert_to_tensor(gamma), tf.convert_to_tensor(beta))
    return y, Statistics(mean, variance * _unbias(x, form)), Saved((mean, variance))


def _combine(x: tf.Tensor, form: Formulation) -> Statistics:
    """Return each channel's mean and biased variance, of all shards if they are in lockstep."""
    if x.dtype == tf.float64:
        mean = tf.reduce_mean(x, form.reduced)
        statistics = Statistics(mean, tf.reduce_mean(tf.square(x - form.spread(mean)), form.reduced))
    else:
        statistics = _combine_columns(x, form)
    if not form.lockstep:
        return statistics
    means, variances = zip(*map(tf.unstack, form.lockstep.exchange(tf.stack(statistics))), strict=True)
    mean = reduce(add, means) / len(means)
    parts = [variance + tf.square(shard_mean - mean) for shard_mean, variance in zip(means, variances, strict=True)]
    return Statistics(mean, reduce(add, parts) / len(parts))


def _combine_columns(x: tf.Tensor, form: Formulation) -> Statistics:
    """Return each channel's mean and biased variance from its columns, which are channels of the fused operation."""
    width, channels = x.shape[2:]
    columns = tf.reshape(x, [-1, 1, 1, width * channels])
    ones = np.ones(width * channels, np.float32)
    _, mean, variance, *_ = _normalize_fused(columns, tf.constant(ones), tf.constant(0 * ones), form)
    means = tf.reshape(mean, [width, channels])
    variances = tf.reshape(variance / _unbias(columns, form, shards=1), [width, channels])
    mean = tf.reduce_mean(means, 0)
    return Statistics(mean, tf.reduce_mean(variances + tf.square(means - mean), 0))


def _count(x: tf.Tensor, form: Formulation) -> float | tf.Tensor:
    sizes = [x.shape[axis] for axis in form.reduced]
    if None not in sizes:
        return float(np.prod(sizes))
    return tf.cast(tf.reduce_prod(tf.gather(tf.shape(x), form.reduced)), statistics_dtype(x.dtype))


def _unbias(x: tf.Tensor, form: Formulation, *, shards: int | None = None) -> float | tf.Tensor:
    count = _count(x, form) * (shards or form.shards)
    return count / (max(count - 1, 1.0) if isinstance(count, float) else tf.maximum(count - 1, 1))


def _differentiate_known(
    dy: tf.Tensor, x: tf.Tensor, gamma: tf.Tensor, form: Formulation, *, training: bool
) -> Gradients:
    ones = np.ones(x.shape[form.axis], gamma.dtype.as_numpy_dtype)
    return Gradients(
        *tf.raw_ops.FusedBatchNormGradV2(
            y_backprop=dy,
            x=x,
            scale=gamma,
            reserve_space_1=0 * ones,
            reserve_space_2=ones,
            epsilon=0.0,
            data_format=form.data_format,
            is_training=training,
        )[:3]
    )


def _differentiate_by_moments(dy: tf.Tensor, normal: tf.Tensor, gamma: tf.Tensor, form: Formulation) -> Gradients:
    count = _count(normal, form)
    d_gamma, d_beta = tf.reduce_sum(dy * normal, form.reduced), tf.reduce_sum(dy, form.reduced)
    dx = form.spread(gamma) * (dy - form.spread(d_beta / count) - normal * form.spread(d_gamma / count))
    return Gradients(dx, d_gamma, d_beta)


def _differentiate_together(dy: tf.Tensor, normal: tf.Tensor, scale: tf.Tensor, form: Formulation) -> Gradients:
    """Do as `_differentiate_by_moments` with the sums of all shards. Scale and shift get the gradients of this one."""
    assert form.lockstep  # noqa: S101 - for the type checker
    gradients, count = scale_shift_gradient(dy, normal, scale, form), _count(normal, form) * form.shards
    d_gamma, d_beta = tf.unstack(form.lockstep.add(tf.stack(gradients[1:])) / count)
    return gradients._replace(x=gradients.x - scale_shift(normal, scale * d_gamma, scale * d_beta, form))
