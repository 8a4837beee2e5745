"""Native operations on maps in bfloat16: against float64, and the same bits by AMX and without it."""

import ctypes
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.makers.operations import OPERATIONS
from tests.native import list_instructions
from tests.unit.train.blocks import UNITS, make_layers
from tests.unit.train.native.comparison import BOUND, compare_blocks, differentiate, draw, measure_terms
from train.model.formulation import FOR_CPU, FOR_NATIVE
from train.native import operations

BFLOAT = tf.bfloat16.as_numpy_dtype
ROUNDING = UNITS["bfloat16"]

ON_MAPS = [name for name in OPERATIONS if name not in {"average_pixels", "dense"}]
"""The others get float32 from maps of any type."""
ROUNDED_WITHIN = {"rectify_maximum", "transition"}


def draw_rounded(name: str, shape: tuple[int, int, int, int, int]) -> list[Any]:
    x, *rest = draw(OPERATIONS[name].shape(*shape))
    return [x.astype(BFLOAT), *(part.astype(BFLOAT).astype("f") if part.ndim == 4 else part for part in rest)]


@settings(max_examples=25)
@given(n=st.integers(1, 5), c=st.integers(1, 40), h=st.integers(1, 9), w=st.integers(1, 9), d=st.integers(1, 40))
@pytest.mark.parametrize("name", ON_MAPS)
def test_every_shape(name: str, n: int, c: int, h: int, w: int, d: int) -> None:
    operation, inputs = OPERATIONS[name], draw_rounded(name, (n, c, h, w, d))
    y = operation.run(*inputs)
    upstream = draw([y.shape], seed=1)[0].astype(BFLOAT)
    results = differentiate(operation.run, inputs, upstream)
    exact = [value.astype(np.float64) for value in inputs]
    expected = [operation.reference(*exact), *operation.gradient(upstream.astype(np.float64), *exact)]
    for found, value in zip(results, expected, strict=True):
        assert found.shape == value.shape
        # The gradient of a maximum is rounded each time that a window adds to it, and a transition's averages are, too.
        bound = 16 * ROUNDING if name in ROUNDED_WITHIN else ROUNDING if found.dtype == BFLOAT else BOUND
        assert measure_terms(found.astype(np.float64), value, results[0].size) < bound


def test_rounding_is_to_the_nearest_and_ties_are_to_even() -> None:
    x, kernel = (np.random.default_rng(seed).integers(0, 2**16, 4000, np.uint16) for seed in (1, 2))
    x, kernel = (np.where(bits & 0x7F80, bits, 0).astype(np.uint16).view(BFLOAT) for bits in (x, kernel))
    with np.errstate(all="ignore"):
        product = x.astype("f")[:, None] * kernel[None, :9].astype("f")  # exact, unless it is too large or small
        expected = product.astype(BFLOAT)
    y = operations.convolve(x.reshape(1, 1, 1, -1), kernel[:9].astype("f").reshape(1, 1, 1, 9)).numpy()[0, :, 0].T
    small = np.abs(product) < 2.0**-126
    np.testing.assert_array_equal(y[~small].astype("f"), expected[~small].astype("f"))
    assert not y[small].astype("f").any(), "denormals become 0"


@settings(max_examples=10)
@given(
    n=st.integers(2, 5), first=st.integers(2, 20), h=st.integers(1, 9), w=st.integers(2, 9), growth=st.integers(1, 17)
)
def test_every_block(n: int, first: int, h: int, w: int, growth: int) -> None:
    n = max(n, 24 // (h * w))
    found, stock = (compare_blocks((n, h, w, first), 2, growth, form, "bfloat16") for form in (FOR_NATIVE, FOR_CPU))
    # Maps near 0 are rounded to either side of it, where ReLU has a kink: of 2,547 shapes, gradients had 2.3 times the
    # error of stock kernels at most, and once 3.1 times.
    factors = {"maps": 2, "statistics": 2, "gradients": 4}
    assert all(found[name] < max(8 * ROUNDING, factors[name] * stock[name]) for name in found), (found, stock)


def run_everything() -> list[Any]:
    found = []
    for name in ON_MAPS:
        found += differentiate(OPERATIONS[name].run, draw_rounded(name, (5, 19, 11, 9, 14)), None)
    layers = make_layers(count=3, growth=5, channels=7, dtype="float32")
    weights = [part for layer in layers for unit in layer for part in unit]
    x = draw([(40, 7, 9, 11)])[0].astype(BFLOAT)
    found += differentiate(lambda x, *weights: operations.run_block(x, weights).maps, [x, *weights])
    statistics = operations.run_block(tf.constant(x), weights)[1:]
    return [*found, *statistics, operations.infer_block(tf.constant(x), weights, statistics)]


def test_bits_do_not_depend_on_threads_or_instructions(kernels: ctypes.CDLL) -> None:
    expected = [np.asarray(value).tobytes() for value in run_everything()]
    tried = []
    for instructions in list_instructions():
        for threads in (1, 2, 3):
            if kernels.toolkit_choose(instructions.encode()):
                operations.set_threads(threads)
                tried.append((instructions, threads))
                assert [np.asarray(value).tobytes() for value in run_everything()] == expected, tried[-1]
    assert len(tried) >= 3


@pytest.mark.parametrize("kind", ["small numbers", "all numbers", "no numbers"])
def test_sums_of_any_terms_have_the_same_bits(kernels: ctypes.CDLL, kind: str) -> None:
    numbers = np.random.default_rng(7)
    for shape in ((1, 70, 8, 12), (3, 33, 5, 7)):
        x, dy = (numbers.integers(0, 2**16, shape, np.uint16) for _ in range(2))
        for bits in (x, dy):
            exponent = bits >> 7 & 0xFF
            if kind == "small numbers":  # products are near the smallest normal number, or below it
                bits[:] = bits & 0x807F | (exponent % 24 + 52) << 7
                bits[numbers.random(shape) < 0.1] &= 0x807F
            elif kind == "all numbers":
                bits[exponent == 0xFF] &= 0xBFFF
        kernel = numbers.normal(size=(3, 3, shape[1], shape[1])).astype("f")
        results = [
            differentiate(operations.convolve, [x.view(BFLOAT), kernel], dy.view(BFLOAT))
            for instructions in list_instructions()
            if kernels.toolkit_choose(instructions.encode())
        ]
        for found in results[1:]:
            for one, other in zip(found, results[0], strict=True):
                integers = f"u{one.dtype.itemsize}"
                nothing = np.isnan(one.astype("f"))
                np.testing.assert_array_equal(nothing, np.isnan(other.astype("f")))
                np.testing.assert_array_equal(one.view(integers)[~nothing], other.view(integers)[~nothing])
            assert kind == "no numbers" or not np.isnan(found[2]).all()
