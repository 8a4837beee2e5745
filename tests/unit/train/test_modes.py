import functools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.tiers import slow, weekly
from tests.unit.train.blocks import UNITS
from train.config.resolution import resolve
from train.model.densenet import build, he_normal
from train.step import budget, optimizer, state, training

TOLERANCES = {"float64": 1e-10, "float32": 1e-4}  # relative error of all gradients together
SMALL = {"growth": 4, "depth": 16, "dropout": 0.2, "learning_rate": 0.05}
PLAIN_LAYERS = {"bottleneck": False, "depth": 13, "compression": 1.0}


def settle(model: Any, dtype: str) -> None:
    for variable in model.trainable_variables:
        value = variable.numpy()
        if variable.path.endswith("gamma"):
            value = 0.2 + 0 * value
        elif variable.path.endswith("beta"):
            value = np.where(np.arange(value.size) % 4, 1.0, -1.0)
        elif variable.path.endswith("kernel") and not variable.path.startswith("classifier"):
            value = tf.cast(tf.cast(value, dtype), variable.dtype)
        variable.assign(value)


def take_step(dataset: str = "digits", *, rounded: str = "", **options: Any) -> dict[str, Any]:
    config = resolve(dataset, **{**SMALL, **options})
    # Use fewer blocks than any model has: compiling takes most of the time.
    config = replace(config, layers=(1, 2, 1, 2) if config.stem == "imagenet" else (2, 2))
    model, rule = build(config), optimizer.choose(config)
    if rounded:
        settle(model, rounded)
    current = state.create(model, rule, initial_scale=2.0**10 if config.precision == "mixed_float16" else 1.0)
    numbers = np.random.default_rng(0)
    images = numbers.integers(0, 256, (8, *config.shape)).astype(np.uint8)
    unit = np.full(config.shape[-1], 128.0)  # with powers of 2, normalised bytes are exact in half precision
    function = training.compile_train_step(training.make_train_step(current, rule, config, unit, unit / 2), config)
    outcome = function(tf.constant(images), tf.constant(np.arange(8, dtype=np.int32)), tf.constant(0.05))
    assert bool(outcome.finite)
    kinds: dict[str, list[Any]] = {"gradients": [], "averages": [], "weights": []}
    for name, value in current.read().items():
        if name in {"loss_scale", "steady"}:
            continue
        average = name.endswith(("mean", "variance"))
        kind = "gradients" if name.startswith("slots/") else "averages" if average else "weights"
        kinds[kind].append(np.ravel(value).astype(np.float64))
    return {"loss": np.array(float(outcome.loss))} | {kind: np.concatenate(found) for kind, found in kinds.items()}


def compare(one: dict[str, Any], other: dict[str, Any]) -> float:
    return max(float(np.linalg.norm(one[kind] - other[kind]) / np.linalg.norm(other[kind])) for kind in other)


CASES = {
    "graph": {},
    "eager": {"loop": "eager"},
    "XLA": {"jit": True},
    "no bottleneck": PLAIN_LAYERS,
    "no bottleneck, XLA": {**PLAIN_LAYERS, "jit": True},
    "ImageNet": {"dataset": "cifar10", "model": "121", "depth": None, "growth": 4},
}


@functools.cache
def take_plain_step(case: str, precision: str) -> dict[str, Any]:
    return take_step(memory="plain", precision=precision, **CASES[case])


@pytest.mark.parametrize(
    ("case", "precision"),
    [
        slow("graph", "float64"),
        slow("eager", "float64"),
        slow("XLA", "float64"),
        slow("no bottleneck", "float64"),
        slow("ImageNet", "float64"),
        weekly("no bottleneck, XLA", "float32"),
        weekly("graph", "float32"),
    ],
)
def test_networks_agree_in_all_modes(case: str, precision: str) -> None:
    options = {**CASES[case], "precision": precision}
    expected = take_plain_step(case, precision)
    for memory in ("shared", "recompute"):
        most = 1e-9 if case == "ImageNet" else TOLERANCES[precision]
        assert compare(take_step(memory=memory, **options), expected) < most


HALF_CASES = [
    slow("graph", "float16"),
    weekly("eager", "float16"),
    slow("graph", "bfloat16"),
    weekly("XLA", "bfloat16"),
    weekly("no bottleneck", "bfloat16"),
]


@functools.cache
def step_in_float32(case: str, dtype: str) -> dict[str, Any]:
    options = CASES[case] if case == "XLA" else {**CASES[case], "loop": "eager"}
    return take_step(rounded=dtype, memory="plain", precision="float32", **options)


@pytest.mark.parametrize(("case", "dtype"), HALF_CASES)
def test_half_precision_only_rounds(case: str, dtype: str) -> None:
    for memory in ("plain", "shared", "recompute"):
        found = take_step(rounded=dtype, memory=memory, precision=f"mixed_{dtype}", **CASES[case])
        assert compare(found, step_in_float32(case, dtype)) < UNITS[dtype]


@pytest.mark.slow
def test_networks_agree_where_some_blocks_save_memory() -> None:
    expected = take_plain_step("graph", "float64")
    assert compare(take_step(memory="shared", recompute_blocks=(2,), precision="float64"), expected) < 1e-10


@pytest.mark.slow
def test_modes_that_save_memory_do() -> None:
    peaks = {
        memory: budget.measure_peak(resolve("cifar10", depth=40, memory=memory), 2, 128)
        for memory in ("plain", "recompute", "shared")
    }
    assert peaks["shared"] < 0.75 * peaks["plain"]
    assert peaks["recompute"] < 0.85 * peaks["plain"]


def test_weights_begin_as_he_and_others_say() -> None:
    values = np.asarray(he_normal(0, "a/kernel")((3, 3, 40, 200)))
    assert values.std() == pytest.approx(np.sqrt(2 / (9 * 40)), rel=0.02)
    assert abs(values.mean()) < 1e-3
    assert not np.array_equal(values, he_normal(1, "a/kernel")((3, 3, 40, 200)))
    assert not np.array_equal(values, he_normal(0, "b/kernel")((3, 3, 40, 200)))
