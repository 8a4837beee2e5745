"""Seeds of many places at once, as one program: what TensorFlow does for each place by a chain of operations.

On a GPU each fold of a place into a seed is some launches and, because TensorFlow keeps seeds in host memory, a copy
to the host and two back. The generator is Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
2011). How TensorFlow makes key and counter of a seed is in tensorflow/core/kernels/stateless_random_ops.cc, and how it
folds a number in is in ``tf.random.experimental.stateless_fold_in``. Words of 32 bits are kept in uint64.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import tensorflow as tf

ROUNDS: Final = 10
MULTIPLIERS: Final = (0xD2511F53, 0xCD9E8D57)
STEPS: Final = (0x9E3779B9, 0xBB67AE85)
SEED_KEY: Final = 0x02461E293EC8F720
"""The key by which TensorFlow scrambles seeds."""


class Stream(NamedTuple):
    """Where a draw begins: key, uint64 (1,), and counter, uint64 (2,)."""

    key: tf.Tensor
    counter: tf.Tensor


def derive_streams(seed: tf.Tensor, paths: Sequence[Sequence[int]]) -> list[Stream]:
    """The streams of the seed after the numbers of each path are folded in.

    Args:
        seed: int64 (2,), both within int32.
        paths: numbers to fold in, one after the other; paths are equally long.
    """
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
    """Key and upper half of the counter of a seed."""
    words = _generate(tf.constant(SEED_KEY, tf.uint64), (_low(first), _high(first), _low(second), _high(second)))
    return _join(words[0], words[1]), _join(words[2], words[3])


def _generate(key: tf.Tensor, counter: tuple[tf.Tensor, ...]) -> tuple[tf.Tensor, ...]:
    """Four random words."""
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
    """`derive_streams` as one program of XLA."""

    @tf.function(jit_compile=True, autograph=False)  # type: ignore[untyped-decorator]
    def run(seed: tf.Tensor) -> list[tf.Tensor]:
        return [part for stream in derive_streams(seed, paths) for part in stream]

    parts = run(seed)
    return [Stream(*parts[start : start + 2]) for start in range(0, len(parts), 2)]
