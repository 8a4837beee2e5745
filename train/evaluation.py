"""How well a model does on a split, example by example."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from train.data import Split
from train.step import EvaluationStep

BATCH = 256


@dataclass(frozen=True)
class Evaluation:
    """Mean loss, accuracy, and the confusion matrix (true class, predicted class) with counts."""

    loss: float
    accuracy: float
    confusion: NDArray[np.int64]


def evaluation_batch(split: Split) -> tf.TensorSpec:
    """Shape and dtype of the batches that a split is evaluated in."""
    return tf.TensorSpec((min(BATCH, len(split)), *split.images.shape[1:]), tf.uint8)


def evaluate(step: EvaluationStep, split: Split, stop: Callable[[], str]) -> Evaluation | None:
    """Run the evaluation step over a split; nothing if asked to stop, because a large model takes minutes for it.

    The last batch is filled up, so that one compiled shape serves all.
    """
    parts = []
    size = min(BATCH, len(split))
    for start in range(0, len(split), size):
        if stop():
            return None
        images = split.images[start : start + size]
        filled = np.concatenate([images, np.zeros((size - len(images), *images.shape[1:]), images.dtype)])
        parts.append(step(tf.constant(filled)).numpy()[: len(images)])
    logits = np.concatenate(parts).astype(np.float64)
    shifted = logits - logits.max(axis=1, keepdims=True)
    likelihoods = shifted[np.arange(len(split)), split.labels] - np.log(np.exp(shifted).sum(axis=1))
    predicted = logits.argmax(axis=1)
    classes = logits.shape[1]
    pairs = np.bincount(split.labels.astype(np.int64) * classes + predicted, minlength=classes**2)
    return Evaluation(
        float(-likelihoods.mean()), float((predicted == split.labels).mean()), pairs.reshape(classes, classes)
    )
