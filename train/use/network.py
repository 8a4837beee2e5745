"""Loads a trained network from a run folder: configuration, newest good weights, normalization and class names."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from train.config.run import Kernels, TrainConfig
from train.errors import DataError, PreflightError
from train.record import checkpoint, reader
from train.step import runtime

if TYPE_CHECKING:
    from train.step.step import EvaluationStep

OPTIONAL: Final = ("sklearn", "matplotlib", "pandas")
"""Packages that Keras imports if they are there. Without them it loads in two thirds of the time."""


@dataclass(frozen=True)
class Network:
    """A trained network."""

    folder: Path
    config: TrainConfig
    position: checkpoint.Position
    inputs: reader.Inputs
    model: Any
    compute_logits: "EvaluationStep"  # takes images as bytes, (batch, height, width, channels)
    note: str = ""  # why the bits may differ from those of the run; else empty


def load(folder: Path, *, exact: bool = False) -> Network:
    """Load the network of a run, for any device; `exact` takes the kernels and threads of the run if they work here.

    Raises a DataError if there is no run or no good checkpoint, an IntegrityError if the checkpoint is of another run.
    """
    config = reader.read_folder_config(folder)
    saved, _ = checkpoint.load(folder / reader.CHECKPOINTS)
    if saved is None:
        raise DataError(
            f"{folder} has no good checkpoint", remedy="train it: the command that began the run goes on with it"
        )
    checkpoint.require_same_run(saved, config.digest)
    environment = saved.position.environment
    kernels: Kernels = reader.name_kernels(environment) if exact else "stock"
    note = _prepare(environment["threads"], config, kernels)
    from train.model import formulation
    from train.model.densenet import build
    from train.step import step
    from train.step.state import name_weights

    # The formulation for CPUs runs on every device, whatever the model was trained on.
    form = formulation.choose("stock" if note else kernels) if exact else formulation.FOR_CPU
    model = build(config, form)
    for name, variable in name_weights(model).items():
        variable.assign(saved.values[name])
    inputs = reader.read_inputs(environment, config)
    compute = step.make_evaluation_step(model, np.asarray(inputs.mean), np.asarray(inputs.std), form=form)
    return Network(folder, config, saved.position, inputs, model, compute, note)


def _prepare(threads: int, config: TrainConfig, kernels: Kernels) -> str:
    with hiding_optional_packages():
        try:
            runtime.prepare(threads, tf32=config.tf32, kernels=kernels)
            note = ""
        except PreflightError as error:
            if kernels == "stock":
                raise
            runtime.prepare(threads, tf32=config.tf32)
            note = f"TensorFlow's kernels, not the native ones of the run: {error.what}; the last bits may differ"
    import tensorflow as tf

    tf.random.set_seed(0)  # saving draws random names, which deterministic TensorFlow refuses without a seed
    return note


@contextmanager
def hiding_optional_packages() -> Iterator[None]:
    """While the block imports Keras, make it believe that the `OPTIONAL` packages are missing."""
    hidden = [name for name in OPTIONAL if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]  # None: the import fails
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]
