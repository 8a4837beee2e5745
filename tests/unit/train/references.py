"""Results of PyTorch, from the Python that TOOLKIT_TORCH_PYTHON names; without it the tests are skipped."""

import functools
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

import keras
import numpy as np
import pytest

from train.config.configuration import TrainConfig
from train.config.resolution import resolve
from train.model.densenet import build
from train.step import state

PYTHON: Final = os.environ.get("TOOLKIT_TORCH_PYTHON") or (sys.executable if importlib.util.find_spec("torch") else "")
needs_torch = pytest.mark.skipif(
    not PYTHON, reason="needs PyTorch: name a Python that has torch 2.13.0 in TOOLKIT_TORCH_PYTHON"
)
STEPS, RATE, DECAY = 20, 0.05, 1e-3

Arrays = dict[str, Any]


def measure(found: Any, expected: Any) -> float:
    difference = np.linalg.norm(np.asarray(found, np.float64) - expected)
    return float(difference / max(np.linalg.norm(expected), 1e-12))


def make_batch(seed: int = 0) -> tuple[Any, Any]:
    numbers = np.random.default_rng(seed)
    return numbers.integers(0, 256, (8, 8, 8, 1)).astype(np.uint8), numbers.integers(0, 10, 8).astype(np.int32)


def normalize_bytes(images: Any) -> Any:
    return (images.astype(np.float64) - 100) / 50


def read_weights(model: keras.Model) -> Arrays:
    return {name: variable.numpy() for name, variable in state.name_weights(model).items()}


def set_weights(model: keras.Model, weights: Arrays) -> None:
    named = state.name_weights(model)
    assert set(named) == set(weights)
    for name, variable in named.items():
        variable.assign(weights[name])


def choose_large_maps() -> TrainConfig:
    return resolve("cifar10", depth=10, growth=12)


def make_large_maps() -> Arrays:
    numbers = np.random.default_rng(1)
    config = choose_large_maps()
    weights = read_weights(build(config))
    for name, value in weights.items():
        if name.endswith("gamma"):
            weights[name] = numbers.uniform(0.15, 0.2, value.shape).astype(np.float32)
        elif name.endswith("beta"):
            weights[name] = (1.25 * np.where(np.arange(value.size) % 4, 1, -1)).astype(np.float32)
    images = normalize_bytes(numbers.integers(0, 256, (64, 32, 32, 3))).astype(np.float32)
    labels = numbers.integers(0, 10, 64).astype(np.int32)
    return {"images": images, "labels": labels} | {f"w:{name}": value for name, value in weights.items()}


def describe_step(config: TrainConfig, given: Arrays) -> Arrays:
    wide = {name: value.astype(np.float64) for name, value in given.items() if name.startswith("w:")}
    facts = {"layers": config.layers, "steps": 1, "rate": RATE, "decay": 0.0}
    batch = {"images": given["images"].astype(np.float64)[None], "labels": given["labels"][None]}
    return {"facts": json.dumps(facts)} | batch | wide


@functools.cache
def ask_torch() -> dict[str, Arrays]:
    images, labels = make_batch()
    digits = resolve("digits", precision="float64")
    jobs = {
        "digits": {
            "facts": json.dumps({"layers": digits.layers, "steps": STEPS, "rate": RATE, "decay": DECAY}),
            "images": normalize_bytes(images)[None],
            "labels": labels[None],
            "evaluate": normalize_bytes(make_batch(1)[0]),
            **{f"w:{name}": value for name, value in read_weights(build(digits)).items()},
        },
        "large": describe_step(choose_large_maps(), make_large_maps()),
    }
    with tempfile.TemporaryDirectory() as folder:
        paths = [(Path(folder) / f"{name}.npz", Path(folder) / f"{name}.out.npz") for name in jobs]
        for (source, _), arrays in zip(paths, jobs.values(), strict=True):
            np.savez(source, **arrays)
        script = Path(__file__).with_name("torch_reference.py")
        command = [PYTHON, str(script), *(str(path) for pair in paths for path in pair)]
        # Use one thread: on a busy machine, threads wait for each other longer than they compute.
        subprocess.run(command, check=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
        return {name: dict(np.load(target)) for name, (_, target) in zip(jobs, paths, strict=True)}
