import ctypes
import functools
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.makers.operations import OPERATIONS
from tests.tiers import slow
from tests.unit.train.blocks import make_layers
from tests.unit.train.native import references
from tests.unit.train.native.comparison import BOUND, differentiate, draw, measure_terms
from tests.unit.train.references import measure
from train.native import operations


@settings(max_examples=25)
@given(n=st.integers(1, 5), c=st.integers(1, 20), h=st.integers(1, 9), w=st.integers(1, 9), d=st.integers(1, 20))
@pytest.mark.parametrize("name", OPERATIONS)
def test_every_shape(name: str, n: int, c: int, h: int, w: int, d: int) -> None:
    operation = OPERATIONS[name]
    inputs = draw(operation.shape(n, c, h, w, d))
    y, *gradients = differentiate(operation.run, inputs)
    exact = [value.astype(np.float64) for value in inputs]
    upstream = draw([y.shape], seed=1)[0].astype(np.float64)
    expected = [operation.reference(*exact), *operation.gradient(upstream, *exact)]
    for found, value in zip([y, *gradients], expected, strict=True):
        assert found.shape == value.shape
        assert measure_terms(found, value, y.size) < BOUND


@pytest.mark.parametrize("shape", [(2, 130, 40, 33, 70), (40, 3, 32, 32, 24)], ids=str)
@pytest.mark.parametrize("name", [slow(name) if name in {"4x4", "5x5"} else name for name in OPERATIONS])
def test_large_shapes(name: str, shape: tuple[int, int, int, int, int]) -> None:
    operation = OPERATIONS[name]
    inputs = draw(operation.shape(*shape))
    y, *gradients = differentiate(operation.run, inputs)
    exact = [value.astype(np.float64) for value in inputs]
    expected = [operation.reference(*exact), *operation.gradient(draw([y.shape], seed=1)[0].astype(np.float64), *exact)]
    assert max(map(measure, [y, *gradients], expected)) < BOUND


@settings(max_examples=25)
@given(n=st.integers(1, 3), h=st.integers(1, 20), w=st.integers(1, 20), size=st.sampled_from([3, 7]))
@pytest.mark.parametrize("even", [False, True])
def test_a_convolution_with_stride_2(n: int, h: int, w: int, size: int, even: bool) -> None:
    x, kernel = draw([(n, 3, h, w), (size, size, 3, 5)])
    found = differentiate(lambda kernel: operations.convolve_by_two(x, kernel, even=even), [kernel])
    upstream = draw([found[0].shape], seed=1)[0].astype(np.float64).transpose(0, 2, 3, 1)
    exact, kernel = x.astype(np.float64).transpose(0, 2, 3, 1), tf.constant(kernel, tf.float64)
    with tf.GradientTape() as tape:
        tape.watch(kernel)
        y = tf.nn.conv2d(*((pad(exact, size // 2), kernel, 2, "VALID") if even else (exact, kernel, 2, "SAME")))
    gradient = tape.gradient(y, kernel, tf.constant(upstream))
    assert measure_terms(found[0], y.numpy().transpose(0, 3, 1, 2)) < BOUND
    assert measure_terms(found[1], gradient.numpy(), found[0].size) < BOUND


def pad(x: Any, pixels: int) -> tf.Tensor:
    return tf.pad(x, [[0, 0], [pixels] * 2, [pixels] * 2, [0, 0]])


@settings(max_examples=25)
@given(n=st.integers(1, 3), c=st.integers(1, 9), h=st.integers(1, 12), w=st.integers(1, 12))
@example(n=1, c=2, h=12, w=9)  # its sums nearly cancel
def test_a_maximum_with_even_padding(n: int, c: int, h: int, w: int) -> None:
    inputs = draw([(n, c, h, w), (c,), (c,)])
    found = differentiate(functools.partial(operations.scale_rectify, maximum=True, even=True), inputs)
    exact = [tf.constant(value, tf.float64) for value in (inputs[0].transpose(0, 2, 3, 1), *inputs[1:])]
    upstream = draw([found[0].shape], seed=1)[0].astype(np.float64).transpose(0, 2, 3, 1)
    with tf.GradientTape() as tape:
        tape.watch(exact)
        y = tf.nn.max_pool2d(pad(tf.nn.relu(exact[0] * exact[1] + exact[2]), 1), 3, 2, "VALID")
    dx, *others = tape.gradient(y, exact, tf.constant(upstream))
    expected = [y.numpy().transpose(0, 3, 1, 2), dx.numpy().transpose(0, 3, 1, 2), *(each.numpy() for each in others)]
    for each, value in zip(found, expected, strict=True):
        assert each.shape == value.shape
        assert measure_terms(each, value, inputs[0].size) < BOUND


@settings(max_examples=25)
@given(n=st.integers(1, 9), c=st.integers(1, 100), scale=st.sampled_from([1e-3, 1.0, 30.0, 1e4]))
def test_the_loss(n: int, c: int, scale: float) -> None:
    (logits,) = draw([(n, c)])
    logits *= scale
    labels = np.random.default_rng(2).integers(0, c, n).astype(np.int32)
    exact = logits.astype(np.float64)
    for targets in (np.eye(c, dtype="f")[labels], np.random.default_rng(3).random((n, c), "f") + np.float32(0.01)):
        loss, gradient = differentiate(lambda x, t=targets: operations.measure_loss(t, x), [logits], np.float32(1))
        np.testing.assert_allclose(loss, references.measure_loss(exact, targets), rtol=BOUND, atol=1e-12)
        expected = references.measure_loss_gradient(exact, targets)
        np.testing.assert_allclose(gradient, expected, rtol=BOUND, atol=1e-6 * np.abs(targets).max())


@given(base=st.floats(0, 1, width=32), exponent=st.integers(0, 10**6))
def test_powers(base: float, exponent: int) -> None:
    found = float(operations.raise_to(base, tf.constant(exponent)))
    assert found == pytest.approx(base**exponent, rel=1e-7, abs=1e-37)


def test_squares_are_averaged() -> None:
    (x,) = draw([(2, 3, 7, 5)])
    expected = x[:, :, :6, :4].reshape(2, 3, 3, 2, 2, 2).mean(axis=(3, 5))
    (dy,) = draw([(2, 3, 3, 2)])
    y, dx = differentiate(operations.average_squares, [x], dy)
    np.testing.assert_allclose(y, expected, rtol=1e-6, atol=1e-7)
    spread = np.zeros_like(x)
    spread[:, :, :6, :4] = (dy / 4).repeat(2, axis=2).repeat(2, axis=3)
    assert np.array_equal(dx, spread)


def run_everything() -> list[Any]:
    found = []
    for operation in OPERATIONS.values():
        found += differentiate(operation.run, draw(operation.shape(5, 19, 11, 9, 14)))
    (logits,) = draw([(7, 5)])
    found += differentiate(
        lambda x: operations.measure_loss(tf.one_hot(tf.range(7) % 5, 5), x), [logits], np.float32(1)
    )
    layers = make_layers(count=3, growth=5, channels=7, dtype="float32")
    weights = [part.numpy() for layer in layers for unit in layer for part in unit]
    (x,) = draw([(40, 7, 9, 11)])
    found += differentiate(lambda x, *weights: operations.run_block(x, weights).maps, [x, *weights])
    statistics = operations.run_block(tf.constant(x), list(map(tf.constant, weights)))[1:]
    return [*found, *statistics, operations.infer_block(tf.constant(x), list(map(tf.constant, weights)), statistics)]


def test_bits_do_not_depend_on_threads_or_instructions(kernels: ctypes.CDLL) -> None:
    expected = [np.asarray(value).tobytes() for value in run_everything()]
    tried = []
    for instructions in (b"avx2", b"avx512", b"amx"):
        for threads in (1, 2, 3, 7, 64):
            if kernels.toolkit_choose(instructions):
                operations.set_threads(threads)
                tried.append((instructions, threads))
                assert [np.asarray(value).tobytes() for value in run_everything()] == expected, tried[-1]
    assert len(tried) >= 4


def test_what_is_no_number_passes_through() -> None:
    (x,) = draw([(2, 3, 4, 4)])
    x[0, 1, 2, 3], x[1, 2, 0, 0], x[1, 2, 0, 1] = np.nan, np.inf, -np.inf
    ones = np.ones(3, np.float32)
    y = operations.scale_rectify(tf.constant(x), ones, 0 * ones).numpy()
    np.testing.assert_array_equal(y, np.where(x < 0, 0, x))
    alone = np.array([[[[0, 1], [0, 0], [1, 0]]]], np.float32)  # a channel of x each, because 0 times NaN is no number
    y = operations.run_transition(tf.constant(x[:1]), ones, 0 * ones, alone).numpy()
    assert np.isnan(y).sum() == 2
    y = operations.run_transition(tf.constant(x[1:, 2:]), ones[:1], 0 * ones[:1], alone[:, :, 2:]).numpy()
    assert np.isinf(y[:, 0]).sum() == 1
    y = operations.scale_rectify(tf.constant(x), ones, 0 * ones, maximum=True).numpy()
    assert np.isnan(y[0, 1]).sum() == 2, "two windows hold that pixel"
    assert np.isinf(y).sum() == 1
    assert np.isnan(operations.average_pixels(tf.constant(x)).numpy()).sum() == 2  # inf - inf is no number
    kernel = draw([(3, 3, 3, 2)])[0]
    y = operations.convolve(tf.constant(x[:1]), kernel).numpy()
    assert np.isnan(y[0, :, 1:4, 2:4]).all()
    assert np.isnan(y).sum() == 2 * 6
    logits = np.array([[0, np.nan], [1, 2]], np.float32)
    assert np.isnan(operations.measure_loss(tf.eye(2), tf.constant(logits)).numpy())
    layers = make_layers(count=2, growth=2, channels=3, dtype="float32")
    weights = [part for layer in layers for unit in layer for part in unit]
    block = operations.run_block(tf.constant(x), weights)
    assert np.isnan(block.maps.numpy()[:, 1:]).all(), "a norm spreads it over the channel, a convolution over channels"
    assert np.isfinite(block.maps.numpy()[:, 0]).all()
