"""Dropout whose mask is a function of (seed, step, place in the network), never of what ran before."""

from typing import Final, NamedTuple

import tensorflow as tf

ALGORITHM: Final = "philox"
"""Named, because the automatic choice differs between XLA and the plain kernels."""


class Dropout(NamedTuple):
    """A share of values to drop, and the seed that says which: int32 (2,). Rate 0 drops nothing and needs no seed."""

    rate: float
    seed: tf.Tensor | None = None

    def at(self, place: int) -> "Dropout":
        """The dropout of one place in the network; places get independent masks."""
        if not self.rate:
            return self
        return Dropout(self.rate, tf.random.experimental.stateless_fold_in(self.seed, place, alg=ALGORITHM))

    def mask(self, x: tf.Tensor) -> tf.Tensor:
        """0 where a value of x is dropped and 1 / (1 - rate) where it stays, in the shape and dtype of x."""
        kept = tf.random.stateless_uniform(tf.shape(x), self.seed, alg=ALGORITHM) >= self.rate
        return tf.cast(kept, x.dtype) * tf.cast(1 / (1 - self.rate), x.dtype)

    def apply(self, x: tf.Tensor) -> tf.Tensor:
        """Drop values of x. Its gradient is the same function of the gradient."""
        return x * self.mask(x) if self.rate else x


NONE = Dropout(0.0)
