from dataclasses import replace
from typing import Any

import pytest
import tensorflow as tf

from tests.makers.formulation import FOR_GPU_CHANNELS_LAST
from tests.tiers import weekly
from tests.unit.train.blocks import UNITS, make_input, make_layers, measure_difference, run, settle
from train.model.block import Mode
from train.model.formulation import FOR_CPU, Formulation

TOLERANCE = {"float64": 1e-10, "float32": 1e-4}


@pytest.mark.parametrize("dtype", ["float64", "float32"])  # each has operations of its own for a norm and its gradient
@pytest.mark.parametrize("rate", [0.0, 0.2])
@pytest.mark.parametrize("bottleneck", [True, False])
@pytest.mark.parametrize("form", [FOR_CPU, FOR_GPU_CHANNELS_LAST], ids=["CPU", "GPU"])
@pytest.mark.parametrize("mode", ["plain", "recompute", "shared"])
def test_modes_agree(mode: Mode, form: Formulation, bottleneck: bool, rate: float, dtype: str) -> None:
    x, layers = make_input(dtype), make_layers(bottleneck=bottleneck, dtype=dtype)
    expected = run(x, layers, "plain", rate=rate)
    assert measure_difference(run(x, layers, mode, form, rate=rate), expected) < TOLERANCE[dtype]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float64", weekly("float32")])
@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("mode", ["plain", "recompute", "shared"])
def test_modes_agree_compiled(mode: Mode, jit: bool, dtype: str) -> None:
    x, layers = make_input(dtype), make_layers(count=2 if jit else 3, dtype=dtype)  # XLA takes seconds for each layer
    expected = run(x, layers, "plain", rate=0.2)

    @tf.function(jit_compile=jit)
    def compute(x: tf.Tensor) -> dict[str, Any]:
        return run(x, layers, mode, rate=0.2, compiled=jit)

    assert measure_difference(compute(x), expected) < TOLERANCE[dtype]


@pytest.mark.slow
@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("mode", ["plain", "recompute", "shared"])
def test_statistics_by_columns_change_rounding_only(mode: Mode, jit: bool) -> None:
    x, layers = make_input("float32"), make_layers(dtype="float32")
    form = replace(FOR_CPU, longest_sum=16)
    expected = run(x, layers, "plain")

    @tf.function(jit_compile=jit)
    def compute(x: tf.Tensor) -> dict[str, Any]:
        return run(x, layers, mode, compiled=jit, form=form)

    assert 0 < measure_difference(compute(x), expected) < TOLERANCE["float32"]


# In units of rounding, twice what was measured. A shift of 1 costs maps of size 0.2 a fifth of their digits, and a
# gradient depends on several rounded maps.
BOUNDS = {"loss": 0.25, "maps": 6, "statistics": 3, "gradients": 40}


def compare_with_float32(mode: Mode, dtype: str) -> dict[str, float]:
    """Return the errors of half precision against float32 in units of rounding; both get the same rounded numbers."""
    layers, x = settle(make_layers(dtype="float32"), dtype), tf.cast(make_input("float64"), dtype)
    found, expected = run(x, layers, mode, scale=1024.0), run(tf.cast(x, tf.float32), layers, "plain")
    assert found["maps"].dtype == dtype
    for result in (found, expected):
        # Compare scale and shift of a unit together: if the next norm removes a shift, the gradient of the shift is 0.
        x_, *weights = result["gradients"]
        units = [weights[start : start + 3] for start in range(0, len(weights), 3)]
        result["gradients"] = [x_, *(part for g, b, k in units for part in (tf.concat([g, b], 0), k))]
    return {kind: measure_difference(found[kind], expected[kind]) / UNITS[dtype] for kind in BOUNDS}


@pytest.mark.parametrize("dtype", list(UNITS))
@pytest.mark.parametrize("mode", ["plain", "recompute", "shared"])
def test_half_precision_only_rounds(mode: Mode, dtype: str) -> None:
    errors = compare_with_float32(mode, dtype)
    assert all(errors[kind] < bound for kind, bound in BOUNDS.items()), errors
