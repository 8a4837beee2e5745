"""Drops values by masks that depend on (seed, step, layer) alone, not on earlier operations.

On a GPU, TensorFlow folds each number into a seed by several launches, a copy to the host and two back, because it
keeps seeds in host memory. Here XLA derives the streams of all layers of a block in one program. The generator is
Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011). Key and counter follow from a seed
as in tensorflow/core/kernels/stateless_random_ops.cc, and numbers are folded in as by
``tf.random.experimental.stateless_fold_in``. Words of 32 bits are stored in uint64.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Final, NamedTuple

import numpy as np
import tensorflow as tf

from train.model.formulation import Formulation
from train.native import operations

ROUNDS: Final = 10
MULTIPLIERS: Final = (0xD2511F53, 0xCD9E8D57)
STEPS: Final = (0x9E3779B9, 0xBB67AE85)
SEED_KEY: Final = 0x02461E293EC8F720
"""The key by which TensorFlow scrambles seeds."""


class Stream(NamedTuple):
    """The start of a random stream: key, uint64 (1,), and counter, uint64 (2,)."""

    key: tf.Tensor
    counter: tf.Tensor


def derive_streams(seed: tf.Tensor, paths: Sequence[Sequence[int]]) -> list[Stream]:
    """Return a stream for each path, all equally long, from a seed: int64 (2,) with values in the range of int32."""
    first, second = (tf.repeat(tf.cast(part, tf.uint64), len(paths)) for part in tf.unstack(seed))
    for places in zip(*paths, strict=True):
        key, high = _scramble(first, second)
        word = _generate(key, (tf.zeros_like(key), tf.zeros_like(key), _low(high), _high(high)))[0]
        # A seed is int32, so its sign reaches the upper words.
        signed = tf.cast(word, tf.int64)
        first = tf.cast(tf.where(signed >= 2**31, signed - 2**32, signed), tf.uint64)
        second = tf.constant(places, tf.uint64)
    key, high = _scramble(first, second)
    zero = tf.zeros([1], tf.uint64)
    return [Stream(key[i : i + 1], tf.concat([zero, high[i : i + 1]], 0)) for i in range(len(paths))]


def _scramble(first: tf.Tensor, second: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    words = _generate(tf.constant(SEED_KEY, tf.uint64), (_low(first), _high(first), _low(second), _high(second)))
    return _join(words[0], words[1]), _join(words[2], words[3])


def _generate(key: tf.Tensor, counter: tuple[tf.Tensor, ...]) -> tuple[tf.Tensor, ...]:
    keys = [_low(key), _high(key)]
    a, b, c, d = counter
    for _ in range(ROUNDS):
        left, right = (word * tf.constant(by, tf.uint64) for word, by in zip((a, c), MULTIPLIERS, strict=True))
        a, b, c, d = _xor(_high(right), b, keys[0]), _low(right), _xor(_high(left), d, keys[1]), _low(left)
        keys = [_low(word + tf.constant(step, tf.uint64)) for word, step in zip(keys, STEPS, strict=True)]
    return a, b, c, d


def _low(value: tf.Tensor) -> tf.Tensor:
    return tf.bitwise.bitwise_and(value, tf.constant(2**32 - 1, tf.uint64))


def _high(value: tf.Tensor) -> tf.Tensor:
    return tf.bitwise.right_shift(value, tf.constant(32, tf.uint64))


def _join(low: tf.Tensor, high: tf.Tensor) -> tf.Tensor:
    return tf.bitwise.bitwise_or(low, tf.bitwise.left_shift(high, tf.constant(32, tf.uint64)))


def _xor(first: tf.Tensor, second: tf.Tensor, third: tf.Tensor) -> tf.Tensor:
    return tf.bitwise.bitwise_xor(tf.bitwise.bitwise_xor(first, second), third)


def derive_compiled(seed: tf.Tensor, paths: Sequence[Sequence[int]]) -> list[Stream]:
    """Return the result of `derive_streams`, computed by one XLA program."""
    parts = _compile(tuple(map(tuple, paths)))(seed)
    return [Stream(*parts[start : start + 2]) for start in range(0, len(parts), 2)]


@cache
def _compile(paths: tuple[tuple[int, ...], ...]) -> Callable[[tf.Tensor], list[tf.Tensor]]:
    """Compile the program for these paths. The cache is for the eager loop, which needs it in each step."""

    @tf.function(jit_compile=True, autograph=False)  # type: ignore[untyped-decorator]
    def run(seed: tf.Tensor) -> list[tf.Tensor]:
        return [part for stream in derive_streams(seed, paths) for part in stream]

    compiled: Callable[[tf.Tensor], list[tf.Tensor]] = run
    return compiled


ALGORITHM: Final = "philox"
"""Name of the algorithm, because the automatic choice differs between XLA and the plain kernels."""

MANTISSA: Final = 23
"""Number of random bits that decide whether a value stays: as many as float32 has below its leading bit."""


class Dropout(NamedTuple):
    """A share of values to drop, and the seed that chooses them."""

    rate: float  # 0 drops nothing and needs no seed
    # int32 (2,), with the path folded in; with streams int64 (2,), as the training step has set it
    seed: tf.Tensor | None = None
    path: tuple[int, ...] = ()  # numbers that are not folded in yet
    # of each path, if all streams of a block are derived at once
    streams: Mapping[tuple[int, ...], Stream] | None = None
    native: bool = False  # native kernels drop the values, by seed and path

    def at(self, place: int) -> "Dropout":
        """Return the dropout of one numbered part of the network; parts get independent masks."""
        if not self.rate:
            return self
        if self.streams is not None or self.native:
            return self._replace(path=(*self.path, place))
        return Dropout(self.rate, tf.random.experimental.stateless_fold_in(self.seed, place, alg=ALGORITHM))

    def derive(self, paths: Sequence[tuple[int, ...]]) -> "Dropout":
        """Derive the streams of all paths below this one, if streams are used. Paths must be equally long."""
        if not self.rate or self.streams is None:
            return self
        whole = [(*self.path, *path) for path in paths]
        return self._replace(streams=dict(zip(whole, derive_compiled(self.seed, whole), strict=True)))

    def mask(self, x: tf.Tensor, form: Formulation) -> tf.Tensor:
        """Return 0 where a value of x is dropped and 1 / (1 - rate) where it stays.

        Both layouts draw the mask with channels last, so that they drop the same values. The mask compares integers
        made of the low random bits. Random floats would differ: TensorFlow's kernels make them from the low bits
        (xla/tsl/lib/random/random_distributions_utils.h), XLA from the high bits (xla/hlo/builder/lib/prng.cc).
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
        if self.streams is None:
            return tf.random.stateless_uniform(
                shape, self.seed, minval=None, maxval=None, dtype=tf.uint32, alg=ALGORITHM
            )
        return tf.raw_ops.StatelessRandomUniformFullIntV2(
            shape=shape, **self.streams[self.path]._asdict(), alg=tf.random.Algorithm.PHILOX.value, dtype=tf.uint32
        )

    def apply(self, x: tf.Tensor, form: Formulation) -> tf.Tensor:
        """Drop values of x. The gradient drops the same values."""
        if self.native:
            return operations.drop(x, self.rate, self.numbers)
        return x * self.mask(x, form) if self.rate else x

    @property
    def numbers(self) -> tf.Tensor:
        """Seed and path, int32 (any,), as native kernels take them."""
        return tf.concat([self.seed, tf.constant(self.path, tf.int32)], 0) if self.rate else tf.zeros([1], tf.int32)


NONE = Dropout(0.0)


def make_dropout(rate: float, seed: tf.Variable | None, form: Formulation) -> Dropout:
    """Return the dropout of a step. The variable `seed` is int64, because XLA for GPUs has no int32 variables."""
    if not rate:
        return NONE
    if form.lockstep:
        seed = form.lockstep.local.seed  # while other shards run, the variable holds theirs
    if form.compile_updates:
        return Dropout(rate, tf.convert_to_tensor(seed), streams={})
    return Dropout(rate, tf.cast(seed, tf.int32), native=form.native)
