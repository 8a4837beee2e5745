"""The whole network against an independent one in PyTorch: hidden states, gradients, and twenty steps.

PyTorch is not in the locked set of packages. The test uses the Python that TOOLKIT_TORCH_PYTHON names, or this one if
it has PyTorch, and is skipped otherwise.
"""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from train import optimizer, state, step
from train.config import Memory, resolve
from train.model import normalization
from train.model.densenet import build

PYTHON = os.environ.get("TOOLKIT_TORCH_PYTHON") or (sys.executable if importlib.util.find_spec("torch") else "")
STEPS, RATE, DECAY = 20, 0.05, 1e-3
needs_torch = pytest.mark.skipif(
    not PYTHON, reason="needs PyTorch: name a Python that has torch 2.13.0 in TOOLKIT_TORCH_PYTHON"
)


def make_batch() -> tuple[Any, Any]:
    numbers = np.random.default_rng(0)
    return numbers.integers(0, 256, (8, 8, 8, 1)).astype(np.uint8), numbers.integers(0, 10, 8).astype(np.int32)


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What PyTorch makes of the same weights and batch."""
    folder = tmp_path_factory.mktemp("torch")
    config = resolve("digits", precision="float64")
    images, labels = make_batch()
    weights = {f"w:{name}": variable.numpy() for name, variable in state.name_weights(build(config)).items()}
    facts = json.dumps({"layers": config.layers, "steps": STEPS, "rate": RATE, "decay": DECAY})
    normalized = (images.astype(np.float64) - 100) / 50
    np.savez(folder / "in.npz", facts=facts, images=normalized[None], labels=labels[None], **weights)
    script = Path(__file__).with_name("torch_reference.py")
    subprocess.run([PYTHON, str(script), str(folder / "in.npz"), str(folder / "out.npz")], check=True)
    with np.load(folder / "out.npz") as file:
        return dict(file)


def measure(found: Any, expected: Any) -> float:
    return float(np.linalg.norm(found - expected) / max(np.linalg.norm(expected), 1e-12))


def train(memory: Memory) -> tuple[dict[str, Any], list[float]]:
    """Hidden states and gradients of the first step, and losses and weights of all."""
    config = resolve("digits", precision="float64", memory=memory, weight_decay=DECAY, batch_size=8)
    model = build(config)
    images, labels = (tf.constant(part) for part in make_batch())
    rule = optimizer.choose(config)
    current = state.create(model, rule, initial_scale=1.0)
    # The first velocity is the first gradient, weight decay included.
    before = {variable.path: variable.numpy() for variable in model.trainable_variables}
    function = tf.function(step.make_train_step(current, rule, config, np.full(1, 100.0), np.full(1, 50.0)))
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
    """How far each hidden state is from the reference: a block's are the maps of all its layers."""
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
@pytest.mark.parametrize("memory", ["plain", "shared"])
def test_a_broken_layer_is_noticed(reference: dict[str, Any], monkeypatch: pytest.MonkeyPatch, memory: Memory) -> None:
    """A norm with another epsilon, which nobody would see in a loss curve."""
    monkeypatch.setattr(normalization, "EPSILON", 1e-4)
    assert max(compare_hidden(reference)) > 1e-6
    found, losses = train(memory)
    gradients = [measure(value, reference[name]) for name, value in found.items() if name.startswith("g:")]
    assert max(gradients) > 1e-6
    assert measure(np.array(losses), reference["losses"]) > 1e-6


@needs_torch
def test_a_broken_rule_is_noticed(reference: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Momentum without Nesterov's look ahead."""

    def update(weight: Any, gradient: Any, slots: Any, rate: Any, _: Any) -> None:
        slots[0].assign(0.9 * slots[0] + gradient)
        weight.assign_sub(rate * slots[0])

    monkeypatch.setattr(optimizer, "make_sgd", lambda _: optimizer.Rule(("velocity",), update))
    _, losses = train("shared")
    assert losses[-1] < losses[0] / 2  # it learns all the same
    assert measure(np.array(losses), reference["losses"]) > 1e-3
