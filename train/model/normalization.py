"""Batch normalisation as pure functions (Ioffe and Szegedy, arXiv 1502.03167), one for every dtype.

In float32 and half precision it is the FusedBatchNormV3 operation: one pass over the map, and bitwise repeatable, which
the mean-and-variance route of Keras is not with two inter-op threads. That operation has no float64 kernel, so float64
(used to prove the gradients) takes the same formulas by moments.
"""

from typing import Final, NamedTuple

import numpy as np
import tensorflow as tf

EPSILON: Final = 1e-5
REDUCED: Final = [0, 1, 2]


class Statistics(NamedTuple):
    """Mean and variance of each channel over batch, height and width: (channels,) each.

    The variance is the unbiased one that running averages collect; `bias` undoes it for normalising.
    """

    mean: tf.Tensor
    variance: tf.Tensor


class Saved(NamedTuple):
    """What the backward pass of the fused operation asks for; empty in float64."""

    spaces: tuple[tf.Tensor, ...]


class Gradients(NamedTuple):
    """With respect to the map, the scale and the shift."""

    x: tf.Tensor
    gamma: tf.Tensor
    beta: tf.Tensor


def statistics_dtype(dtype: tf.DType) -> tf.DType:
    """Half precision is normalised with float32 statistics."""
    return tf.float64 if dtype == tf.float64 else tf.float32


def bias(x: tf.Tensor, statistics: Statistics) -> Statistics:
    """The statistics by which map `x` is normalised: those that are collected, with the biased variance."""
    return statistics._replace(variance=statistics.variance / _unbias(x))


def rsqrt(x: tf.Tensor, statistics: Statistics) -> tf.Tensor:
    """1 / sqrt(biased variance + epsilon) from the statistics of map `x`: (channels,)."""
    return tf.math.rsqrt(bias(x, statistics).variance + EPSILON)


def normalize(x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor) -> tuple[tf.Tensor, Statistics, Saved]:
    """Normalise by the batch's own statistics, then scale and shift.

    Args:
        x: (batch, height, width, channels).
        gamma: scale, (channels,).
        beta: shift, (channels,).
    """
    if x.dtype != tf.float64:
        none = tf.zeros([0], gamma.dtype)
        y, mean, variance, *spaces = tf.raw_ops.FusedBatchNormV3(
            x=x, scale=gamma, offset=beta, mean=none, variance=none, epsilon=EPSILON, is_training=True
        )
        return y, Statistics(mean, variance), Saved(tuple(spaces))
    mean = tf.reduce_mean(x, REDUCED)
    biased = tf.reduce_mean(tf.square(x - mean), REDUCED)
    y = (x - mean) * (tf.math.rsqrt(biased + EPSILON) * gamma) + beta
    return y, Statistics(mean, biased * _unbias(x)), Saved(())


def normalize_gradient(
    dy: tf.Tensor, x: tf.Tensor, gamma: tf.Tensor, statistics: Statistics, saved: Saved
) -> Gradients:
    """Gradient of `normalize` with respect to x, gamma and beta."""
    if saved.spaces:
        first, second, third = saved.spaces
        return Gradients(
            *tf.raw_ops.FusedBatchNormGradV3(
                y_backprop=dy,
                x=x,
                scale=gamma,
                reserve_space_1=first,
                reserve_space_2=second,
                reserve_space_3=third,
                epsilon=EPSILON,
                is_training=True,
            )[:3]
        )
    scale = rsqrt(x, statistics)
    dx, d_gamma, d_beta = _differentiate_by_moments(dy, (x - statistics.mean) * scale, gamma)
    return Gradients(dx * scale, d_gamma, d_beta)


def standardize(x: tf.Tensor) -> tuple[tf.Tensor, Statistics]:
    """Normalise by the batch's own statistics and leave it at that."""
    ones = np.ones(x.shape[-1], statistics_dtype(x.dtype).as_numpy_dtype)
    normal, statistics, _ = normalize(x, tf.constant(ones), tf.constant(0 * ones))
    return normal, statistics


def standardize_gradient(dy: tf.Tensor, normal: tf.Tensor, scale: tf.Tensor) -> tf.Tensor:
    """Gradient of `standardize` with respect to x, given its result and the `rsqrt` of its variance as scale.

    What is normal already is normalised by mean 0 and variance 1: the map itself need not be kept.
    """
    if normal.dtype == tf.float64:
        return _differentiate_by_moments(dy, normal, scale).x
    return _differentiate_known(dy, normal, scale, training=True).x


def apply_statistics(
    x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor, statistics: Statistics, *, epsilon: float = EPSILON
) -> tf.Tensor:
    """Normalise by given statistics, their variance taken as it is, then scale and shift.

    One pass over the map, with a ReLU behind it too: TensorFlow's remapper makes one operation of both, where a product
    and a sum would be three passes.
    """
    mean, variance = statistics
    if x.dtype == tf.float64:
        return (x - mean) * (tf.math.rsqrt(variance + epsilon) * gamma) + beta
    return tf.raw_ops.FusedBatchNormV3(
        x=x, scale=gamma, offset=beta, mean=mean, variance=variance, epsilon=epsilon, is_training=False
    )[0]


def scale_shift(x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor) -> tf.Tensor:
    """x * gamma + beta by channel, in the dtype of x."""
    ones = np.ones(x.shape[-1], gamma.dtype.as_numpy_dtype)
    return apply_statistics(x, gamma, beta, Statistics(0 * ones, ones), epsilon=0.0)


def scale_shift_gradient(dy: tf.Tensor, x: tf.Tensor, gamma: tf.Tensor) -> Gradients:
    """Gradient of `scale_shift` with respect to x, gamma and beta.

    The gradient of a norm in inference, with mean 0 and variance 1, is just this, and makes all three in one pass where
    products and sums would take four.
    """
    if x.dtype == tf.float64:
        return Gradients(dy * gamma, tf.reduce_sum(dy * x, REDUCED), tf.reduce_sum(dy, REDUCED))
    return _differentiate_known(dy, x, gamma, training=False)


def _count(x: tf.Tensor) -> float | tf.Tensor:
    """Values a channel is averaged over: a number where the shape is known, which saves the graph six nodes a time."""
    values = x.shape[:3].num_elements()
    return float(values) if values else tf.cast(tf.reduce_prod(tf.shape(x)[:3]), statistics_dtype(x.dtype))


def _unbias(x: tf.Tensor) -> float | tf.Tensor:
    """Ratio of the unbiased to the biased variance."""
    count = _count(x)
    return count / (max(count - 1, 1.0) if isinstance(count, float) else tf.maximum(count - 1, 1))


def _differentiate_known(dy: tf.Tensor, x: tf.Tensor, gamma: tf.Tensor, *, training: bool) -> Gradients:
    """Gradient of a norm whose mean is 0 and whose variance is 1."""
    ones = np.ones(x.shape[-1], gamma.dtype.as_numpy_dtype)
    return Gradients(
        *tf.raw_ops.FusedBatchNormGradV2(
            y_backprop=dy,
            x=x,
            scale=gamma,
            reserve_space_1=0 * ones,
            reserve_space_2=ones,
            epsilon=0.0,
            is_training=training,
        )[:3]
    )


def _differentiate_by_moments(dy: tf.Tensor, normal: tf.Tensor, gamma: tf.Tensor) -> Gradients:
    """Gradient of a norm in terms of its result, for a deviation of 1."""
    count = _count(normal)
    d_gamma, d_beta = tf.reduce_sum(dy * normal, REDUCED), tf.reduce_sum(dy, REDUCED)
    return Gradients(gamma * (dy - d_beta / count - normal * (d_gamma / count)), d_gamma, d_beta)
