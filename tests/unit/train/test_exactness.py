from dataclasses import replace
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.unit.train.references import (
    Arrays,
    ask_torch,
    choose_large_maps,
    make_large_maps,
    make_small_maps,
    measure,
    needs_torch,
    set_weights,
)
from train.config.configuration import Memory
from train.config.resolution import resolve
from train.model import normalization
from train.model.densenet import build
from train.model.formulation import FOR_CPU, Formulation

MODES: tuple[Memory, ...] = ("plain", "recompute", "shared")
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


def measure_gradients(mode: Memory) -> float:
    given, reference = make_small_maps(), ask_torch()["small"]
    model = build(resolve("digits", memory=mode))
    set_weights(model, {name[2:]: value for name, value in given.items() if name.startswith("w:")})
    order = [f"g:{variable.path}" for variable in model.trainable_variables]
    assert sorted(order) == sorted(name for name in reference if name.startswith("g:"))
    found = differentiate(model, given)
    return float(np.median([measure(value, reference[name]) for value, name in zip(found, order, strict=True)]))


@pytest.mark.parametrize("mode", MODES)
def test_gradients_in_float32(mode: Memory) -> None:
    assert measure_gradients(mode) < GRADIENT_BOUND


def test_an_error_of_half_a_percent_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    original: Any = normalization.scale_shift

    def scale_shift(x: tf.Tensor, gamma: tf.Tensor, *rest: Any) -> tf.Tensor:
        y = original(x, gamma, *rest)
        return y + 5e-3 * (y - tf.stop_gradient(y))

    monkeypatch.setattr(normalization, "scale_shift", scale_shift)
    assert measure_gradients("shared") > 100 * GRADIENT_BOUND


def measure_hidden(mode: Memory, form: Formulation) -> float:
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
def test_hidden_states_in_float32(mode: Memory) -> None:
    assert measure_hidden(mode, FOR_CPU) < HIDDEN_BOUND
