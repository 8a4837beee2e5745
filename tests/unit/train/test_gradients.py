import numpy as np
import pytest
import tensorflow as tf

from tests.unit.train.blocks import make_input, make_layers, run
from train.model.block import Mode, Unit

STEP = 1e-6


def compare_with_differences(mode: Mode) -> float:
    numbers = np.random.default_rng(11)
    x, layers = make_input(shape=(2, 4, 4, 3)), make_layers(channels=3, count=2, growth=2)
    flat = [x, *(tensor for units in layers for unit in units for tensor in unit)]

    def loss(values: list[tf.Tensor]) -> float:
        units = [Unit(*values[start : start + 3]) for start in range(1, len(values), 3)]
        return float(run(values[0], [units[i : i + 2] for i in range(0, len(units), 2)], mode)["loss"])

    gradients = run(x, layers, mode)["gradients"]
    worst = 0.0
    for place, gradient in enumerate(gradients):
        direction = numbers.normal(size=flat[place].shape)
        moved = [[*flat[:place], flat[place] + sign * STEP * direction, *flat[place + 1 :]] for sign in (1, -1)]
        expected = (loss(moved[0]) - loss(moved[1])) / (2 * STEP)
        found = float(tf.reduce_sum(gradient * direction))
        worst = max(worst, abs(found - expected) / max(abs(expected), 1e-3))
    return worst


@pytest.mark.parametrize("mode", ["plain", "recompute", "shared"])
def test_gradients_are_derivatives(mode: Mode) -> None:
    assert compare_with_differences(mode) < 1e-5
