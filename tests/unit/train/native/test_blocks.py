"""Native dense blocks and dropout."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.train.blocks import make_layers
from tests.unit.train.native.comparison import BLOCK_BOUND, compare_blocks, differentiate
from train.model.formulation import FOR_CPU
from train.native import operations


@settings(max_examples=20)
@given(
    n=st.integers(1, 5),
    first=st.integers(2, 20),  # `settle` rectifies the first channel to 0, and one channel would leave nothing
    size=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    count=st.integers(0, 3),
    growth=st.integers(1, 17),
)
def test_every_block(n: int, first: int, size: tuple[int, int], count: int, growth: int) -> None:
    if n * size[0] * size[1] < 12:
        n = 12  # a norm over fewer values leaves little but rounding
    errors = compare_blocks((n, *size, first), count, growth)
    if max(errors.values()) < BLOCK_BOUND:
        return
    # With few channels, norms leave so little freedom that gradients are 0 but for rounding, divided by small numbers.
    stock = compare_blocks((n, *size, first), count, growth, FOR_CPU)
    assert all(errors[name] < max(BLOCK_BOUND, 4 * stock[name]) for name in errors), (errors, stock)


@pytest.mark.parametrize("size", [8, 5], ids=["whole tiles", "laid apart"])
def test_a_gradient_that_others_read_too_is_not_written_over(size: int) -> None:
    layers = make_layers(count=2, growth=2, channels=3, dtype="float32")
    weights = [part for layer in layers for unit in layer for part in unit]
    x = tf.random.stateless_normal((2, 3, size, size), (1, 2))

    @tf.function(autograph=False)  # type: ignore[untyped-decorator]
    def run(x: tf.Tensor, factor: tf.Tensor, *, read: bool) -> tuple[tf.Tensor, tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(x)
            maps = operations.run_block(x, weights).maps
        upstream = factor * tf.cos(maps)
        return tape.gradient(maps, x, upstream), upstream if read else tf.cos(factor * maps)

    factor = tf.constant(2.0)
    (dx, upstream), (alone, _) = run(x, factor, read=True), run(x, factor, read=False)
    assert np.array_equal(dx, alone)
    assert np.array_equal(upstream, 2 * tf.cos(operations.run_block(x, weights).maps))


def test_dropout_keeps_its_share_and_depends_on_every_number() -> None:
    ones = tf.ones((20, 30, 16, 16))
    kept = operations.drop(ones, 0.25, [1, 2, 3]).numpy()
    assert set(np.unique(kept)) == {np.float32(0), np.float32(1 / 0.75)}
    share = (kept > 0).mean(axis=(2, 3))
    assert kept.mean() == pytest.approx(1.0, abs=0.01)
    assert np.abs(share - 0.75).max() < 0.15, "each map keeps its share"
    assert share.std() == pytest.approx(np.sqrt(0.25 * 0.75 / 256), rel=0.15), "as independent draws would vary"
    flat = (kept > 0).reshape(600, 256)
    agreement = np.corrcoef(flat)[np.triu_indices(600, 1)]
    assert np.abs(agreement).max() < 0.4, "no two maps have the same mask"
    for other in ([0, 2, 3], [1, 0, 3], [1, 2, 0], [1, 2]):
        assert 0.3 < (operations.drop(ones, 0.25, other).numpy() != kept).mean() < 0.45
    dy = operations.drop(ones, 0.25, [1, 2, 3])
    found = differentiate(lambda x: operations.drop(x, 0.25, [1, 2, 3]), [ones.numpy()], ones.numpy())
    assert np.array_equal(found[-1], dy.numpy())
    assert np.array_equal(operations.drop(ones, 0.0, [1]).numpy(), ones.numpy())
