"""Compares the loss of 300 steps on CIFAR-10 with the PyTorch reference, from the same weights and batches.

    python -m benchmarks.training.curve --data-dir DIR --torch-python VENV/bin/python

The distance between two memory modes of ``train`` shows the size of differences by rounding. The distances of native
kernels and of PyTorch are compared with it.
"""

import argparse
import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from benchmarks.training.learning import Curve, draw
from benchmarks.training.run import ROOT
from train.cli import parse
from train.config.configuration import Kernels, Memory, TrainConfig
from train.config.resolution import resolve
from train.data import load
from train.input.batches import Batches
from train.native import operations
from train.step import runtime

HERE = Path(__file__).parent
STEPS, RATE, WINDOW = 300, 0.1, 20


def run_ours(config: TrainConfig, batches: list[Any], mean: Any, std: Any) -> tuple[dict[str, Any], list[float]]:
    import tensorflow as tf

    from train.step import state, training

    current, rule = training.start(config)
    weights = {f"w:{name}": variable.numpy() for name, variable in state.name_weights(current.model).items()}
    function = training.compile_train_step(training.make_train_step(current, rule, config, mean, std), config)
    rate = tf.constant(RATE)
    losses = [function(tf.constant(images), tf.constant(labels), rate).loss for images, labels in batches]
    return weights, list(map(float, losses))


def run_torch(python: str, path: Path, config: TrainConfig, weights: dict[str, Any], batches: list[Any]) -> list[float]:
    facts = {"layers": config.layers, "steps": STEPS, "rate": RATE, "decay": config.weight_decay}
    images, labels = (np.stack(parts) for parts in zip(*batches, strict=True))
    np.savez(path, facts=json.dumps(facts), images=images, labels=labels, **weights)
    out = path.with_suffix(".out.npz")
    subprocess.run([python, ROOT / "tests" / "unit" / "train" / "torch_reference.py", path, out], check=True)
    with np.load(out) as file:
        losses: list[float] = file["losses"].tolist()
    return losses


def measure(one: list[float], other: list[float]) -> float:
    difference = smooth(one) - smooth(other)
    return float(np.sqrt(np.mean(difference**2)))


def smooth(losses: list[float]) -> NDArray[np.float64]:
    return np.convolve(losses, np.full(WINDOW, 1 / WINDOW), "valid")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data-dir", type=Path, required=True, help="a local copy of CIFAR-10")
    parser.add_argument("--torch-python", required=True, help="Python with PyTorch")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "curve.json")
    options = parser.parse_args()
    config = parse(["cifar10", "--model", "bc-22-12", "--data-dir", str(options.data_dir)])
    runtime.prepare(2)
    operations.set_threads(2)
    dataset = load(config)
    batches = [Batches(dataset, config).make(step) for step in range(STEPS)]
    curves, weights = dict[str, list[float]](), dict[str, Any]()
    modes: list[tuple[str, Memory, Kernels]] = [("native", "shared", "native")]
    modes += [(mode, mode, "stock") for mode in get_args(Memory)]
    for name, memory, kernels in modes:
        config = resolve("cifar10", model="bc-22-12", memory=memory, kernels=kernels)
        weights, curves[name] = run_ours(config, batches, dataset.mean, dataset.std)
    normal = [(((images - dataset.mean) / dataset.std).astype(np.float32), labels) for images, labels in batches]
    with tempfile.TemporaryDirectory() as folder:
        curves["PyTorch"] = run_torch(options.torch_python, Path(folder) / "job.npz", config, weights, normal)
    distances = {name: round(measure(curves["shared"], losses), 5) for name, losses in curves.items()}
    print(json.dumps({"distance to shared": distances, "last": {name: smooth(c)[-1] for name, c in curves.items()}}))
    rounded = {name: [round(loss, 5) for loss in losses] for name, losses in curves.items()}
    options.out.write_text(json.dumps({"distances": distances, "curves": rounded}) + "\n", encoding="utf-8")
    drawn = [Curve(name, range(WINDOW, STEPS + 1), smooth(losses).tolist()) for name, losses in curves.items()]
    draw(drawn, f"training loss, mean of {WINDOW} steps", options.out.with_suffix(".png"))


if __name__ == "__main__":
    main()
