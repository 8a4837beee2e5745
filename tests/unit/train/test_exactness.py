from dataclasses import replace
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from benchmarks.training.peers import keras_stock
from tests.unit.train.references import (
    LAYOUTS,
    Arrays,
    ask_torch,
    choose_large_maps,
    make_large_maps,
    make_small_maps,
    measure,
    needs_torch,
    set_weights,
)
from train.config.resolution import resolve
from train.model import normalization
from train.model.densenet import build
from train.model.formulation import FOR_CPU, Formulation

MODES = ("plain", "recompute", "shared")
GRADIENT_BOUND = 5e-6
"""Bound of the median over weights; measured: 0.7e-6 to 1.6e-6."""
HIDDEN_BOUND = 2.5e-6
"""Bound for normalised maps with long sums; measured: 1.5e-6, with single sums 4e-6 to 7e-6 (PyTorch 3e-5)."""

pytestmark = needs_torch


def differentiate(model: keras.Model, given: Arrays) -> list[Any]:
    with tf.GradientTape() as tape:
        logits = model(tf.constant(given["images"]), training=True)
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(given["labels"], logits))
    gradients = tape.gradient(loss, [variable.value for variable in model.trainable_variables])
    return [gradient.numpy() for gradient in gradients]


def measure_gradients(who: str) -> float:
    given, reference = make_small_maps(), ask_torch()["small"]
    names = [name for name in reference if name.startswith("g:")]
    if who in LAYOUTS:
        return float(np.median([measure(reference[f"{who}/{name}"], reference[name]) for name in names]))
    model = build(resolve("digits", memory=who if who in MODES else "plain"))
    set_weights(model, {name[2:]: value for name, value in given.items() if name.startswith("w:")})
    order = [f"g:{variable.path}" for variable in model.trainable_variables]
    assert sorted(order) == sorted(names)
    if who == "keras":
        weights, model = model.trainable_variables, keras_stock.build(22, shape=(8, 8, 1))
        for variable, weight in zip(model.trainable_variables, weights, strict=True):
            variable.assign(weight)
    found = differentiate(model, given)
    return float(np.median([measure(value, reference[name]) for value, name in zip(found, order, strict=True)]))


@pytest.mark.parametrize("who", [*MODES, "keras", *LAYOUTS])
def test_gradients_in_float32(who: str) -> None:
    assert measure_gradients(who) < GRADIENT_BOUND


@pytest.mark.parametrize("mode", MODES)
def test_an_error_of_half_a_percent_is_noticed(monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    original: Any = normalization.scale_shift

    def scale_shift(x: tf.Tensor, gamma: tf.Tensor, *rest: Any) -> tf.Tensor:
        y = original(x, gamma, *rest)
        return y + 5e-3 * (y - tf.stop_gradient(y))

    monkeypatch.setattr(normalization, "scale_shift", scale_shift)
    assert measure_gradients(mode) > 100 * GRADIENT_BOUND


def measure_hidden(mode: str, form: Formulation) -> float:
    given, reference = make_large_maps(), ask_torch()["large"]
    model = build(replace(choose_large_maps(), memory=mode), form)
    set_weights(model, {name[2:]: value for name, value in given.items() if name.startswith("w:")})
    value, errors = tf.constant(given["images"]), []
    for layer in model.layers[1:]:
        value = layer(value, training=True) if layer.name.startswith("block") else layer(value)
        if layer.name in {"block1", "block2"}:
            errors.append(measure(value.numpy(), reference[f"h:{layer.name}"]))
    assert len(errors) == 2
    return max(errors)


@pytest.mark.parametrize("mode", MODES)
def test_hidden_states_in_float32(mode: str) -> None:
    assert measure_hidden(mode, FOR_CPU) < HIDDEN_BOUND


@pytest.mark.parametrize("mode", MODES)
def test_statistics_by_single_sums_are_noticed(mode: str) -> None:
    """``longest_sum=None`` uses TensorFlow's fused operation over whole maps."""
    assert measure_hidden(mode, replace(FOR_CPU, longest_sum=None)) > 1.4 * HIDDEN_BOUND


def test_hidden_states_of_pytorch_in_float32() -> None:
    """PyTorch sums in float64 where maps are contiguous, and is as exact; with channels last it is not."""
    reference = ask_torch()["large"]
    errors = {
        layout: max(measure(reference[f"{layout}/h:{name}"], reference[f"h:{name}"]) for name in ("block1", "block2"))
        for layout in LAYOUTS
    }
    assert errors["contiguous"] < HIDDEN_BOUND < errors["channels_last"] < 1e-4
