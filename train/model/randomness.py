"""Dropout whose mask is a function of (seed, step, place in the network), never of what ran before."""

import math
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
import tensorflow as tf

from train.model.formulation import Formulation
from train.model.philox import Stream, derive_compiled

ALGORITHM: Final = "philox"
"""Named, because the automatic choice differs between XLA and the plain kernels."""

MANTISSA: Final = 23
"""Bits of a random integer that decide whether a value stays: as many as float32 has below its leading bit."""


class Dropout(NamedTuple):
    """A share of values to drop, and the seed that says which. Rate 0 drops nothing and needs no seed.

    Attributes:
        rate: share of values.
        seed: int32 (2,), with the places folded in; int64 and as the step set it where streams are derived.
        path: places that are not folded in yet.
        streams: by path, where all streams of a block are derived at once; see ``train.model.philox``.
    """

    rate: float
    seed: tf.Tensor | None = None
    path: tuple[int, ...] = ()
    streams: Mapping[tuple[int, ...], Stream] | None = None

    def at(self, place: int) -> "Dropout":
        """The dropout of one place in the network; places get independent masks."""
        if not self.rate:
            return self
        if self.streams is not None:
            return self._replace(path=(*self.path, place))
        return Dropout(self.rate, tf.random.experimental.stateless_fold_in(self.seed, place, alg=ALGORITHM))

    def derive(self, paths: Sequence[tuple[int, ...]]) -> "Dropout":
        """Derive the streams of places below this one, if they are derived at all; paths are equally long."""
        if not self.rate or self.streams is None:
            return self
        whole = [(*self.path, *path) for path in paths]
        return self._replace(streams=dict(zip(whole, derive_compiled(self.seed, whole), strict=True)))

    def mask(self, x: tf.Tensor, form: Formulation) -> tf.Tensor:
        """0 where a value of x is dropped and 1 / (1 - rate) where it stays, in the shape and dtype of x.

        It is drawn with channels last in either layout, so that the same values are dropped. It compares integers,
        because from the same random bits TensorFlow's kernels make a float of the low ones
        (xla/tsl/lib/random/random_distributions_utils.h) and XLA of the high ones
        (xla/hlo/builder/lib/prng.cc), so a mask of floats would be another one with XLA. The low bits are used.
        """
        shape = tf.shape(x)
        if form.channels_first:
            shape = tf.gather(shape, [0, 2, 3, 1])
        bits = self._draw(shape)
        dropped = math.ceil(float(np.float32(self.rate)) * 2**MANTISSA)
        kept = tf.bitwise.bitwise_and(bits, tf.constant(2**MANTISSA - 1, tf.uint32)) >= tf.constant(dropped, tf.uint32)
        if form.channels_first:
            kept = tf.transpose(kept, [0, 3, 1, 2])
        return tf.cast(kept, x.dtype) * tf.cast(1 / (1 - self.rate), x.dtype)

    def _draw(self, shape: tf.Tensor) -> tf.Tensor:
        """Random uint32."""
        if self.streams is None:
            return tf.random.stateless_uniform(
                shape, self.seed, minval=None, maxval=None, dtype=tf.uint32, alg=ALGORITHM
            )
        return tf.raw_ops.StatelessRandomUniformFullIntV2(
            shape=shape, **self.streams[self.path]._asdict(), alg=tf.random.Algorithm.PHILOX.value, dtype=tf.uint32
        )

    def apply(self, x: tf.Tensor, form: Formulation) -> tf.Tensor:
        """Drop values of x. Its gradient is the same function of the gradient."""
        return x * self.mask(x, form) if self.rate else x


NONE = Dropout(0.0)


def make_dropout(rate: float, seed: tf.Variable | None, form: Formulation) -> Dropout:
    """The dropout of a step, from the int64 variable that holds its seed; XLA for GPUs has no int32 variables."""
    if not rate:
        return NONE
    if form.compile_updates:
        return Dropout(rate, tf.convert_to_tensor(seed), streams={})
    return Dropout(rate, tf.cast(seed, tf.int32))
