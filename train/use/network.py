"""Loads a trained network from a run folder: configuration, newest good weights, normalization and class names."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from train.config.configuration import WHITE, Kernels, TrainConfig
from train.errors import DataError, PreflightError
from train.record import checkpoint, reader
from train.step import runtime

if TYPE_CHECKING:
    from train.model.formulation import Formulation
    from train.step.evaluation import EvaluationStep

FIXED: Final = 8
"""Images in every batch of TensorFlow's own kernels. The bits of an image depend there on the shape of its batch: those
of one image alone differ from those of the same image in a batch of two or more. Native kernels have one order of sums.
"""


@dataclass(frozen=True)
class Network:
    """A trained network."""

    folder: Path
    config: TrainConfig
    position: checkpoint.Position
    inputs: reader.Inputs  # of image files, whatever white was in the data
    model: Any
    compute_logits: "EvaluationStep"  # takes images as bytes, (batch, height, width, channels)
    form: "Formulation"  # computes the logits
    note: str = ""  # why the bits may differ from those of the run; empty if they are the same

    def compute_probabilities(self, images: NDArray[np.uint8]) -> NDArray[np.float64]:
        """Return the probabilities of all classes: (batch, classes). Those of an image do not depend on the others."""
        if self.form.native:
            logits = self._graph(images).numpy()
        else:
            empty = np.zeros((-len(images) % FIXED, *images.shape[1:]), np.uint8)
            whole = np.concatenate([images, empty])
            parts = [self._graph(whole[start : start + FIXED]).numpy() for start in range(0, len(whole), FIXED)]
            logits = np.concatenate(parts)[: len(images)]
        logits = logits.astype(np.float64)
        shares = np.exp(logits - logits.max(axis=1, keepdims=True))
        return np.asarray(shares / shares.sum(axis=1, keepdims=True))

    @cached_property
    def last_maps(self) -> Any:
        """The part of the model up to the maps that the classifier averages."""
        import keras

        return keras.Model(self.model.input, self.model.get_layer(f"scale{len(self.config.layers)}").output)

    @cached_property
    def _graph(self) -> Any:
        import tensorflow as tf

        shape = tf.TensorSpec((None if self.form.native else FIXED, *self.inputs.shape), tf.uint8)
        return tf.function(self.compute_logits, input_signature=[shape], autograph=False)


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
    from train.step import evaluation
    from train.step.state import name_weights

    # The formulation for CPUs runs on every device, whatever the model was trained on.
    form = formulation.choose("stock" if note else kernels) if exact else formulation.FOR_CPU
    model = build(config, form)
    for name, variable in name_weights(model).items():
        variable.assign(saved.values[name])
    inputs = reader.read_inputs(environment, config).for_white(WHITE)
    compute = evaluation.make_evaluation_step(model, np.asarray(inputs.mean), np.asarray(inputs.std), form=form)
    return Network(folder, config, saved.position, inputs, model, compute, form, note)


def _prepare(threads: int, config: TrainConfig, kernels: Kernels) -> str:
    with runtime.hiding_optional_packages():
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
