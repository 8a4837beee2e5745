from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from toolkit.checks import numerics
from toolkit.checks.check import load_tensorflow

DRAW = np.random.default_rng(7)
CASES: list[tuple[Callable[..., list[numerics.Expected]], tuple[tuple[int, ...], ...], tuple[int, ...]]] = [
    (numerics.expect_matmul, ((3, 4), (4, 2)), (3, 2)),
    (numerics.expect_conv2d, ((2, 4, 5, 2), (3, 3, 2, 3)), (2, 4, 5, 3)),
    (numerics.expect_batch_norm, ((3, 2, 2, 3), (3,), (3,)), (3, 2, 2, 3)),
]


@pytest.mark.parametrize(("function", "shapes", "result"), CASES, ids=["matmul", "conv2d", "batch_norm"])
def test_gradients_are_finite_differences(
    function: Callable[..., list[numerics.Expected]], shapes: tuple[tuple[int, ...], ...], result: tuple[int, ...]
) -> None:
    inputs = [DRAW.standard_normal(shape) for shape in shapes]
    up = DRAW.standard_normal(result)

    def loss(values: list[Any]) -> float:
        return float(np.sum(function(np, *values, up)[0].value * up))

    _, *gradients = function(np, *inputs, up)
    for index, expected in enumerate(gradients):
        at = tuple(int(DRAW.integers(size)) for size in inputs[index].shape)
        step = np.zeros(inputs[index].shape)
        step[at] = 1e-6
        moved = [[*inputs[:index], inputs[index] + sign * step, *inputs[index + 1 :]] for sign in (1, -1)]
        numeric = (loss(moved[0]) - loss(moved[1])) / 2e-6
        assert numeric == pytest.approx(expected.value[at], rel=1e-6, abs=1e-6), expected.name


@pytest.mark.parametrize(("function", "shapes", "result"), CASES, ids=["matmul", "conv2d", "batch_norm"])
def test_the_rounding_scale_is_no_smaller_than_the_value(
    function: Callable[..., list[numerics.Expected]], shapes: tuple[tuple[int, ...], ...], result: tuple[int, ...]
) -> None:
    inputs = [DRAW.standard_normal(shape) for shape in shapes]
    for expected in function(np, *inputs, DRAW.standard_normal(result)):
        assert np.all(expected.magnitude >= np.abs(expected.value) * (1 - 1e-12)), expected.name


def test_products_are_compared_in_full_precision_which_is_then_as_before() -> None:
    tf = load_tensorflow()
    config = tf.config.experimental
    before = config.tensor_float_32_execution_enabled()
    for usual in (True, False):
        config.enable_tensor_float_32_execution(usual)
        with numerics.full_precision(tf):
            assert not config.tensor_float_32_execution_enabled()
        assert config.tensor_float_32_execution_enabled() == usual
    config.enable_tensor_float_32_execution(before)
