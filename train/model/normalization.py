"""Batch normalisation as pure functions (Ioffe and Szegedy, arXiv 1502.03167), one for every dtype.

In float32 and half precision it is the FusedBatchNormV3 operation: one pass over the map, and bitwise repeatable, which
the mean-and-variance route of Keras is not with two inter-op threads. That operation has no float64 kernel, so float64
(used to prove the gradients) takes the same formulas by moments.
"""

from typing import Final, NamedTuple

import tensorflow as tf

EPSILON: Final = 1e-5
REDUCED: Final = [0, 1, 2]


class Statistics(NamedTuple):
    """Mean and variance of each channel over batch, height and width: (channels,) each.

    The variance is the unbiased one that running averages collect; `rsqrt` undoes it for normalising.
    """

    mean: tf.Tensor
    variance: tf.Tensor


class Saved(NamedTuple):
    """What the backward pass of the fused operation asks for; empty in float64."""

    spaces: tuple[tf.Tensor, ...]


def _count(x: tf.Tensor) -> tf.Tensor:
    """Values a channel is averaged over, as a scalar in the statistics' dtype."""
    return tf.cast(tf.reduce_prod(tf.shape(x)[:3]), statistics_dtype(x.dtype))


def statistics_dtype(dtype: tf.DType) -> tf.DType:
    """Half precision is normalised with float32 statistics."""
    return tf.float64 if dtype == tf.float64 else tf.float32


def rsqrt(x: tf.Tensor, variance: tf.Tensor) -> tf.Tensor:
    """1 / sqrt(biased variance + epsilon) from the unbiased variance of map `x`: (channels,)."""
    count = _count(x)
    return tf.math.rsqrt(variance * ((count - 1) / count) + EPSILON)


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
    count = _count(x)
    mean = tf.reduce_mean(x, REDUCED)
    biased = tf.reduce_mean(tf.square(x - mean), REDUCED)
    y = (x - mean) * (tf.math.rsqrt(biased + EPSILON) * gamma) + beta
    return y, Statistics(mean, biased * (count / tf.maximum(count - 1, 1))), Saved(())


def normalize_gradient(
    dy: tf.Tensor, x: tf.Tensor, gamma: tf.Tensor, statistics: Statistics, saved: Saved
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Gradient of `normalize` with respect to x, gamma and beta."""
    if saved.spaces:
        first, second, third = saved.spaces
        dx, dgamma, dbeta, _, _ = tf.raw_ops.FusedBatchNormGradV3(
            y_backprop=dy,
            x=x,
            scale=gamma,
            reserve_space_1=first,
            reserve_space_2=second,
            reserve_space_3=third,
            epsilon=EPSILON,
            is_training=True,
        )
        return dx, dgamma, dbeta
    scale = rsqrt(x, statistics.variance)
    normal = (x - statistics.mean) * scale
    dbeta = tf.reduce_sum(dy, REDUCED)
    dgamma = tf.reduce_sum(dy * normal, REDUCED)
    count = _count(x)
    return gamma * scale * (dy - dbeta / count - normal * (dgamma / count)), dgamma, dbeta


def scale_shift(x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor) -> tf.Tensor:
    """x * gamma + beta by channel, in the dtype of x."""
    return x * tf.cast(gamma, x.dtype) + tf.cast(beta, x.dtype)


def scale_shift_gradient(dy: tf.Tensor, x: tf.Tensor, gamma: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Gradient of `scale_shift` with respect to x, gamma and beta.

    The gradient of a norm in inference, with mean 0 and variance 1, is just this, and makes all three in one pass where
    products and sums would take four.
    """
    if x.dtype == tf.float64:
        return dy * gamma, tf.reduce_sum(dy * x, REDUCED), tf.reduce_sum(dy, REDUCED)
    dx, dgamma, dbeta, _, _ = tf.raw_ops.FusedBatchNormGradV3(
        y_backprop=dy,
        x=x,
        scale=gamma,
        reserve_space_1=tf.zeros_like(gamma),
        reserve_space_2=tf.ones_like(gamma),
        reserve_space_3=tf.zeros([0], gamma.dtype),
        epsilon=0.0,
        is_training=False,
    )
    return dx, dgamma, dbeta
