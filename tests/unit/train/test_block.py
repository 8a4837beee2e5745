"""The memory modes compute one function: forward, loss, gradients and statistics."""

from typing import Any

import pytest
import tensorflow as tf

from tests.unit.train.blocks import make_input, make_layers, measure_difference, run
from train.model import shared
from train.model.block import Mode

TOLERANCE = {"float64": 1e-10, "float32": 1e-4}


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("rate", [0.0, 0.2])
@pytest.mark.parametrize("bottleneck", [True, False])
@pytest.mark.parametrize("mode", ["recompute", "shared"])
def test_modes_agree(mode: Mode, bottleneck: bool, rate: float, dtype: str) -> None:
    x, layers = make_input(dtype), make_layers(bottleneck=bottleneck, dtype=dtype)
    expected = run(x, layers, "plain", rate=rate)
    assert measure_difference(run(x, layers, mode, rate=rate), expected) < TOLERANCE[dtype]


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("mode", ["plain", "recompute", "shared"])
def test_modes_agree_compiled(mode: Mode, jit: bool, dtype: str) -> None:
    x, layers = make_input(dtype), make_layers(dtype=dtype)
    expected = run(x, layers, "plain", rate=0.2)

    @tf.function(jit_compile=jit)
    def compute(x: tf.Tensor) -> dict[str, Any]:
        return run(x, layers, mode, rate=0.2, compiled=jit)

    assert measure_difference(compute(x), expected) < TOLERANCE[dtype]


# Half precision rounds every stored map, and values near 0 fall on the other side of a ReLU: gradients feel that most.
@pytest.mark.parametrize(("dtype", "tolerance"), [("bfloat16", 0.4), ("float16", 0.15)])
@pytest.mark.parametrize("mode", ["plain", "recompute", "shared"])
def test_half_precision_stays_near_float64(mode: Mode, dtype: str, tolerance: float) -> None:
    layers = make_layers(dtype="float32")
    expected = run(make_input("float64"), make_layers(dtype="float64"), "plain")
    found = run(tf.cast(make_input("float64"), dtype), layers, mode, scale=1024.0)
    assert found["maps"].dtype == dtype

    assert measure_difference(found, expected) < tolerance


def test_a_wrong_gradient_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out what the statistics owe to the gradient: the comparison must fail."""
    x, layers = make_input(), make_layers()
    expected = run(x, layers, "plain")
    monkeypatch.setattr(shared, "standardize_gradient", lambda dy, _, scale: dy * scale)
    assert measure_difference(run(x, layers, "shared"), expected) > 1e-3
