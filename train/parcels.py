"""A batch as one array of bytes, so that it goes to the device in one copy.

First come the images, then the labels, then the learning rate.
"""

from typing import Any, Final

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

RATE: Final = 4
"""Bytes of the learning rate, a float32. Labels are int64: GPUs have few kernels for int32."""


def pack(images: Any, labels: Any, rate: Any) -> NDArray[np.uint8]:
    """Put a batch into one array of bytes (size,)."""
    parts = (np.asarray(images, np.uint8), np.asarray(labels, np.int64), np.asarray([rate], np.float32))
    return np.concatenate([np.ascontiguousarray(part).reshape(-1).view(np.uint8) for part in parts])


def unpack(parcel: tf.Tensor, shape: tuple[int, ...]) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Take a batch out again, in a graph: images of this shape, labels as int64, and the learning rate as float32."""
    count, end = int(np.prod(shape)), int(np.prod(shape)) + 8 * shape[0]
    images = tf.reshape(parcel[:count], shape)
    labels = tf.bitcast(tf.reshape(parcel[count:end], [shape[0], 8]), tf.int64)
    return images, labels, tf.bitcast(parcel[end : end + RATE], tf.float32)
