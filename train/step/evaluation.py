"""Makes the evaluation step, and measures loss, accuracy, confusion matrix and calibration of a network by it."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from train.config.configuration import TrainConfig
from train.data import Split
from train.model.formulation import Formulation

EvaluationStep = Callable[[tf.Tensor], tf.Tensor]


def make_evaluation_step(
    model: keras.Model, mean: NDArray[np.float64], std: NDArray[np.float64], *, form: Formulation | None = None
) -> EvaluationStep:
    """Return a function from images as bytes to logits (batch, classes). Native kernels need their formulation."""

    def step(images: tf.Tensor) -> tf.Tensor:
        return model(normalize_images(images, mean, std, model.input.dtype, form), training=False)

    return step


def normalize_images(
    images: tf.Tensor,
    mean: NDArray[np.float64],
    std: NDArray[np.float64],
    dtype: str,
    form: Formulation | None = None,
) -> tf.Tensor:
    """Turn bytes into floats, so that each channel of the training split has mean 0 and deviation 1."""
    if form and form.native:
        # In a graph, TensorFlow replaces a division by a constant with a product, which is rounded differently.
        return (tf.cast(images, dtype) - tf.constant(mean, dtype)) * tf.constant(1 / std, dtype)
    return (tf.cast(images, dtype) - tf.constant(mean, dtype)) / tf.constant(std, dtype)


def compile_evaluation_step(step: EvaluationStep, config: TrainConfig) -> EvaluationStep:
    return step if config.loop == "eager" else tf.function(step, jit_compile=config.jit, autograph=False)


BINS: Final = 15
"""Number of bins, as in the paper that `fill_bins` names."""


@dataclass(frozen=True)
class Bin:
    """The images of a bin: how many, the mean probability of their predicted classes, and the share that is right."""

    images: int
    confidence: float
    accuracy: float


def fill_bins(confidence: NDArray[np.float64], right: NDArray[np.bool_]) -> tuple[Bin, ...]:
    """Return the bins that have images, the least probable first. They are those of their predicted class.

    See Guo et al., "On Calibration of Modern Neural Networks" (ICML 2017, https://arxiv.org/abs/1706.04599).
    """
    places = np.clip(np.ceil(confidence * BINS).astype(np.int64) - 1, 0, BINS - 1)
    sums = (np.bincount(places, weights, minlength=BINS).tolist() for weights in (None, confidence, right))
    return tuple(Bin(int(n), sure / n, good / n) for n, sure, good in zip(*sums, strict=True) if n)


def compute_error(bins: Sequence[Bin]) -> float:
    """Return the expected calibration error: the mean gap of the bins, weighted by their numbers of images."""
    return sum(bin_.images * abs(bin_.confidence - bin_.accuracy) for bin_ in bins) / sum(bin_.images for bin_ in bins)


EVALUATION_BATCH: Final = 256

# NumPy's own choose their algorithm by the processor, and round differently.
_exp, _log = np.frompyfunc(math.exp, 1, 1), np.frompyfunc(math.log, 1, 1)


WORST: Final = 40
"""Number of examples that an evaluation names."""


class HardExample(NamedTuple):
    """An example with a high loss, its predicted class and the probability of that class."""

    example: int
    predicted: int
    probability: float


@dataclass(frozen=True)
class Evaluation:
    """The results of a split: mean loss, accuracy, confusion matrix, calibration, and the worst examples.

    The confusion matrix has counts by (true class, predicted class).
    """

    loss: float
    accuracy: float
    confusion: NDArray[np.int64]
    worst: tuple[HardExample, ...]
    bins: tuple[Bin, ...] = ()

    def describe_calibration(self) -> dict[str, Any]:
        """Return the calibration as records have it: the error, and three numbers for each bin."""
        return {
            "calibration_error": compute_error(self.bins),
            "calibration": [[bin_.images, bin_.confidence, bin_.accuracy] for bin_ in self.bins],
        }


def evaluation_batch(split: Split) -> tf.TensorSpec:
    return tf.TensorSpec((min(EVALUATION_BATCH, len(split)), *split.images.shape[1:]), tf.uint8)


def evaluate(step: EvaluationStep, split: Split, stop: Callable[[], str]) -> Evaluation | None:
    """Evaluate a split, or return None if `stop`, asked before each batch, says so."""
    logits = compute_logits(step, split, stop)
    return None if logits is None else measure(logits, split.labels)


def compute_logits(step: EvaluationStep, split: Split, stop: Callable[[], str]) -> NDArray[np.float64] | None:
    """Return the logits of a split, (examples, classes), or None if `stop` says so. The last batch is padded."""
    parts = []
    size = min(EVALUATION_BATCH, len(split))
    for start in range(0, len(split), size):
        if stop():
            return None
        images = split.images[start : start + size]
        filled = np.concatenate([images, np.zeros((size - len(images), *images.shape[1:]), images.dtype)])
        parts.append(step(tf.constant(filled)).numpy()[: len(images)])
    logits: NDArray[np.float64] = np.concatenate(parts).astype(np.float64)
    return logits


def measure(logits: NDArray[np.float64], labels: NDArray[np.int32]) -> Evaluation:
    shifted = logits - logits.max(axis=1, keepdims=True)
    sums = _exp(shifted).astype(float).sum(axis=1)
    likelihoods = shifted[np.arange(len(labels)), labels] - _log(sums).astype(float)
    predicted = logits.argmax(axis=1)
    right = predicted == labels
    classes = logits.shape[1]
    pairs = np.bincount(labels.astype(np.int64) * classes + predicted, minlength=classes**2)
    worst = np.argsort(likelihoods, kind="stable")[:WORST].tolist()
    return Evaluation(
        float(-likelihoods.mean()),
        float(right.mean()),
        pairs.reshape(classes, classes),
        tuple(HardExample(index, int(predicted[index]), float(1 / sums[index])) for index in worst),
        fill_bins(1 / sums, right),
    )
