"""Packs the input of a step into one array of bytes, which reaches the device in one copy.

The input is a batch, or the indices of images that the device already has.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from train.data import Dataset
from train.input.augmentation import Augmentation
from train.step.runtime import fits_device

Tensors = tuple[tf.Tensor, tf.Tensor, tf.Tensor]
"""Images, labels as int64 (GPUs have few kernels for int32) or targets, and the learning rate as float32."""


def pack(images: Any, labels: Any, rate: Any) -> NDArray[np.uint8]:
    narrow = np.asarray(labels, np.int64 if np.ndim(labels) == 1 else np.float32)
    return _join(np.asarray(images, np.uint8), narrow, np.asarray([rate], np.float32))


def unpack(packed: tf.Tensor, shape: tuple[int, ...], classes: int = 0) -> Tensors:
    """Return the tensors of a packed batch. ``shape``: of its images. With ``classes``, it has targets, not labels."""
    dtype, sizes = (tf.float32, [shape[0], classes, 4]) if classes else (tf.int64, [shape[0], 8])
    count = int(np.prod(shape))
    end = count + int(np.prod(sizes))
    labels = tf.bitcast(tf.reshape(packed[count:end], sizes), dtype)
    return tf.reshape(packed[:count], shape), labels, tf.bitcast(packed[end : end + 4], tf.float32)


def pack_choice(chosen: Any, draws: Any, rate: Any) -> NDArray[np.uint8]:
    return _join(np.asarray(chosen, np.int64), np.asarray(draws, np.uint8), np.asarray([rate], np.float32))


def _join(*parts: NDArray[Any]) -> NDArray[np.uint8]:
    return np.concatenate([np.ascontiguousarray(part).reshape(-1).view(np.uint8) for part in parts])


@dataclass(frozen=True, eq=False)
class Resident:
    """The training split in the device's memory."""

    images: tf.Tensor  # (examples, height, width, channels)
    labels: tf.Tensor  # (examples,)
    pad: int  # pixels that each side gets before cropping; 0 without augmentation
    fill: NDArray[np.uint8]  # their value, (channels,)

    def unpack(self, packed: tf.Tensor, batch: int) -> Tensors:
        """Return the batch of a packed choice, augmented as by ``Batches.make``. XLA compiles this to one launch."""

        @tf.function(jit_compile=True, autograph=False)  # type: ignore[untyped-decorator]
        def take(images: tf.Tensor, labels: tf.Tensor, packed: tf.Tensor) -> Tensors:
            chosen = tf.bitcast(tf.reshape(packed[: 8 * batch], [batch, 8]), tf.int64)
            draws = tf.cast(tf.reshape(packed[8 * batch : 11 * batch], [batch, 3]), tf.int64)
            shown = self._crop(images, chosen, draws) if self.pad else tf.gather(images, chosen)
            return shown, tf.gather(labels, chosen), tf.bitcast(packed[11 * batch : 11 * batch + 4], tf.float32)

        return tuple(take(self.images, self.labels, packed))

    def _crop(self, images: tf.Tensor, chosen: tf.Tensor, draws: tf.Tensor) -> tf.Tensor:
        """Shift and mirror as ``augment`` does. Each pixel is gathered by its index among the pixels of all images."""
        _, height, width, channels = images.shape
        across = tf.range(width, dtype=tf.int64)
        rows = draws[:, :1] + tf.range(height, dtype=tf.int64) - self.pad
        columns = draws[:, 1:2] + tf.where(draws[:, 2:] == 1, across[::-1], across) - self.pad
        row, column = tf.clip_by_value(rows, 0, height - 1), tf.clip_by_value(columns, 0, width - 1)
        pixels = ((chosen[:, None] * height + row) * width)[:, :, None] + column[:, None, :]
        inside = (rows == row)[:, :, None] & (columns == column)[:, None, :]
        return tf.where(inside[..., None], tf.gather(tf.reshape(images, [-1, channels]), pixels), self.fill)


def keep(dataset: Dataset, augmentation: Augmentation | None, memory: int) -> Resident | None:
    """Copy the training split to the device; returns None if its images take too much of `memory`, in bytes."""
    images, labels = dataset.train.images, dataset.train.labels
    if not fits_device(images.nbytes, memory):
        return None
    fill = np.rint(dataset.mean).astype(np.uint8)
    pad = augmentation.pad if augmentation else 0
    return Resident(tf.constant(images), tf.constant(labels, tf.int64), pad, fill)
