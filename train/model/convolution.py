"""Convolves with stride 1 and padding that keeps the size; a 1x1 convolution is a faster product of matrices."""

import tensorflow as tf

from train.model.formulation import Formulation


def convolve(x: tf.Tensor, kernel: tf.Tensor, form: Formulation) -> tf.Tensor:
    """Convolve x with a kernel (size, size, inputs, outputs), in the dtype of x."""
    kernel = tf.cast(kernel, x.dtype)
    if _is_product(kernel, form):
        return tf.tensordot(x, kernel[0, 0], axes=1)
    return tf.nn.conv2d(x, kernel, strides=1, padding="SAME", data_format=form.data_format)


def convolve_gradient(dy: tf.Tensor, x: tf.Tensor, kernel: tf.Tensor, form: Formulation) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the gradients of `convolve` for x, in the dtype of x, and for the kernel, in the kernel's dtype."""
    narrow = tf.cast(kernel, x.dtype)
    # One after the other, so that x is freed before d_x is allocated, if nothing else reads x.
    if _is_product(kernel, form):
        d_kernel = tf.matmul(_flatten(x), _flatten(dy), transpose_a=True)
        with tf.control_dependencies([d_kernel]):
            d_x = tf.tensordot(dy, tf.transpose(narrow[0, 0]), axes=1)
    else:
        options = {
            "out_backprop": dy,
            "strides": [1, 1, 1, 1],
            "padding": "SAME",
            "data_format": form.data_format,
        }
        d_kernel = tf.raw_ops.Conv2DBackpropFilter(input=x, filter_sizes=kernel.shape, **options)
        with tf.control_dependencies([d_kernel]):
            d_x = tf.raw_ops.Conv2DBackpropInput(input_sizes=tf.shape(x), filter=narrow, **options)
    return d_x, tf.cast(tf.reshape(d_kernel, kernel.shape), kernel.dtype)


def _is_product(kernel: tf.Tensor, form: Formulation) -> bool:
    return form.pointwise_as_product and bool(kernel.shape[:2] == (1, 1))


def _flatten(x: tf.Tensor) -> tf.Tensor:
    return tf.reshape(x, [-1, x.shape[-1]])
