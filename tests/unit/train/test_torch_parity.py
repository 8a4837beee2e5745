from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.unit.train.references import (
    DECAY,
    RATE,
    STEPS,
    ask_torch,
    make_batch,
    measure,
    needs_torch,
    normalize_bytes,
    set_weights,
)
from train.config.configuration import Memory
from train.config.resolution import resolve
from train.model import normalization
from train.model.densenet import build
from train.step import evaluation, optimizer, state, training


@pytest.fixture
def reference() -> dict[str, Any]:
    return ask_torch()["digits"]


def train(memory: Memory) -> tuple[dict[str, Any], list[float]]:
    config = resolve("digits", precision="float64", memory=memory, weight_decay=DECAY, batch_size=8)
    model = build(config)
    images, labels = (tf.constant(part) for part in make_batch())
    rule = optimizer.choose(config)
    current = state.create(model, rule, initial_scale=1.0)
    # The first velocity is the first gradient, with weight decay.
    before = {variable.path: variable.numpy() for variable in model.trainable_variables}
    function = tf.function(training.make_train_step(current, rule, config, np.full(1, 100.0), np.full(1, 50.0)))
    losses, out = [], dict[str, Any]()
    for number in range(STEPS):
        losses.append(float(function(images, labels, tf.constant(RATE, tf.float64)).loss))
        if number == 0:
            for variable, (velocity,) in zip(model.trainable_variables, current.slots, strict=True):
                out[f"g:{variable.path}"] = velocity.numpy() - DECAY * before[variable.path]
    return out | {f"w:{name}": value.numpy() for name, value in state.name_weights(model).items()}, losses


@needs_torch
@pytest.mark.parametrize("memory", ["plain", "recompute", "shared"])
def test_twenty_steps_agree(reference: dict[str, Any], memory: Memory) -> None:
    found, losses = train(memory)
    assert measure(np.array(losses), reference["losses"]) < 1e-9
    assert reference["losses"][-1] < reference["losses"][0] / 2
    differences = {name: measure(value, reference[name]) for name, value in found.items()}
    assert set(differences) == {name for name in reference if name[:2] in {"g:", "w:"}}
    assert max(differences.values()) < 1e-7, max(differences, key=lambda name: differences[name])


def compare_hidden(reference: dict[str, Any]) -> list[float]:
    """Return the difference of each hidden state from the reference; a block's state is the maps of all its layers."""
    config = resolve("digits", precision="float64")
    value = (tf.constant(make_batch()[0], tf.float64) - 100) / 50
    differences = []
    for layer in build(config).layers[1:]:
        value = layer(value, training=True) if layer.name.startswith("block") else layer(value)
        if f"h:{layer.name}" in reference:
            differences.append(measure(value.numpy(), reference[f"h:{layer.name}"]))
    assert len(differences) == len([name for name in reference if name.startswith("h:")])
    return differences


@needs_torch
def test_hidden_states_agree(reference: dict[str, Any]) -> None:
    differences = compare_hidden(reference)
    assert len(differences) == 10  # stem, three blocks with their scales, two transitions, classifier
    assert max(differences) < 1e-10


@needs_torch
@pytest.mark.slow
def test_a_broken_layer_is_noticed(reference: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(normalization, "EPSILON", 1e-4)
    assert max(compare_hidden(reference)) > 1e-6
    found, losses = train("shared")
    assert max(measure(value, reference[name]) for name, value in found.items() if name.startswith("g:")) > 1e-6
    assert measure(np.array(losses), reference["losses"]) > 1e-6


def compare_evaluation(reference: dict[str, Any], precision: str) -> dict[str, float]:
    model = build(resolve("digits", precision=precision))
    set_weights(model, {name[2:]: value for name, value in reference.items() if name.startswith("w:")})
    images = make_batch(1)[0]
    value = tf.constant(normalize_bytes(images), model.input.dtype)
    differences = {}
    for layer in model.layers[1:]:
        value = layer(value, training=False) if layer.name.startswith("block") else layer(value)
        if f"e:{layer.name}" in reference:
            differences[layer.name] = measure(value.numpy(), reference[f"e:{layer.name}"])
    evaluate = evaluation.make_evaluation_step(model, np.full(1, 100.0), np.full(1, 50.0))
    differences["logits"] = measure(evaluate(tf.constant(images)).numpy(), reference["e:classifier"])
    assert len(differences) == 1 + len([name for name in reference if name.startswith("e:")])
    return differences


@needs_torch
@pytest.mark.parametrize(("precision", "tolerance"), [("float64", 1e-10), ("float32", 1e-5)])
def test_evaluation_agrees(reference: dict[str, Any], precision: str, tolerance: float) -> None:
    differences = compare_evaluation(reference, precision)
    assert len(differences) == 11
    assert max(differences.values()) < tolerance, differences
    # The running averages have changed, and evaluation differs from training.
    assert measure(reference["e:classifier"], reference["h:classifier"]) > 0.1
    assert np.abs(reference["w:block1/maps_variance"] - 1).max() > 0.1
