"""Measures the loss of a batch: its cross entropy with labels, or with targets that divide an image among classes."""

from collections.abc import Callable, Sequence

import tensorflow as tf

from train.config.configuration import TrainConfig
from train.model.formulation import Formulation
from train.native import operations

Loss = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]
"""Returns the mean loss over images. Takes labels, int (images,), or targets, float (images, classes), and logits."""


def make_loss(config: TrainConfig, form: Formulation, weights: Sequence[float] = ()) -> Loss:
    """Return the loss of a training step. `weights` are factors of the classes' terms; none means 1 for each.

    Label smoothing gives each class the same part of every target (Szegedy et al., arXiv 1512.00567, section 7).
    """
    smoothing = config.label_smoothing
    direct = not (form.native or form.asynchronous or config.mixup or smoothing or weights)

    def measure(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
        if direct:
            return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
        # Deterministic TensorFlow would gather the likelihoods, and the gradient of that operation sorts on a GPU.
        classes, dtype = logits.shape[-1], logits.dtype
        is_soft = labels.shape.rank == 2
        targets = tf.cast(labels, dtype) if is_soft else tf.one_hot(tf.cast(labels, tf.int64), classes, dtype=dtype)
        if smoothing:
            targets = targets * (1 - smoothing) + smoothing / classes
        if weights:
            targets *= tf.constant(weights, dtype)
        if form.native:
            return operations.measure_loss(targets, logits)
        return tf.reduce_mean(-tf.reduce_sum(targets * tf.nn.log_softmax(logits), axis=-1))

    return measure


def count_correct(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    """Return how many images have their label as the likeliest class; of targets, the one with the greatest share."""
    if labels.shape.rank == 2:
        labels = tf.argmax(labels, axis=-1)
    labels = tf.cast(labels, tf.int64)  # GPUs have no kernel that compares int32, so the host would do it
    return tf.reduce_sum(tf.cast(tf.argmax(logits, axis=-1) == labels, tf.int64))
