"""Wraps the native operations as functions that TensorFlow differentiates.

Maps are float32 or bfloat16 (images, channels, height, width); all else is float32. The library sets no shapes, so
these functions do.
"""

import ctypes
import functools
import locale
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import tensorflow as tf

from train.errors import PreflightError
from train.native import library

FRAMEWORK: Final = "libtensorflow_framework.so.2"
"""The library of TensorFlow that exports the C interface. It has had this name since TensorFlow 2.0."""

Gradient = Callable[..., Any]


@functools.cache
def load() -> Any:
    """Load the library into TensorFlow, once in a process; returns the module of its operations."""
    path = library.find().path
    framework = Path(tf.sysconfig.get_lib()) / FRAMEWORK
    try:
        ctypes.CDLL(str(framework), mode=ctypes.RTLD_GLOBAL)  # TensorFlow 2.18 hides it from other libraries
        with _lowering_letters():
            loaded = tf.load_op_library(str(path))
    except (OSError, tf.errors.OpError) as error:
        raise _refuse(str(error)) from error
    if not hasattr(loaded, "toolkit_block"):
        raise _refuse(f"{framework} lacks the C interface of operations and kernels")
    return loaded


@contextmanager
def _lowering_letters() -> Iterator[None]:
    """Let TensorFlow name operations by the rules of ASCII. By those of Turkish, it would leave each I as it is."""
    before = locale.setlocale(locale.LC_CTYPE)
    locale.setlocale(locale.LC_CTYPE, "C")
    try:
        yield
    finally:
        locale.setlocale(locale.LC_CTYPE, before)


def _refuse(why: str) -> PreflightError:
    return PreflightError(
        f"TensorFlow {tf.version.VERSION} cannot use the native kernels", why=why, remedy="use --kernels stock"
    )


def set_threads(count: int) -> None:
    """Set the number of threads of the kernels in this process. It does not change their results."""
    load()  # comes first, because TensorFlow lists the operations of a library only if it loads the library itself
    ctypes.CDLL(str(library.find().path)).toolkit_set_threads(count)


def convolve(x: tf.Tensor, kernel: tf.Tensor, *, first: bool = False) -> tf.Tensor:
    """Convolve with stride 1 and padding that keeps the size. The `first` layer computes no gradient of x."""

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def run(x: tf.Tensor, kernel: tf.Tensor) -> tuple[tf.Tensor, Gradient]:
        def differentiate(dy: tf.Tensor) -> tuple[tf.Tensor | None, tf.Tensor]:
            if first:
                return None, _shape(load().toolkit_convolution_kernel_gradient(dy=dy, x=x, kernel=kernel), kernel.shape)
            gradients = load().toolkit_convolution_gradient(dy=dy, x=x, kernel=kernel)
            return _shape(gradients.dx, x.shape), _shape(gradients.d_kernel, kernel.shape)

        y = load().toolkit_convolution(x=x, kernel=kernel)
        return _shape(y, [x.shape[0], kernel.shape[-1], *x.shape[2:]]), differentiate

    return run(x, tf.convert_to_tensor(kernel))


def turn(x: tf.Tensor, *, even: bool) -> tuple[tf.Tensor, list[int]]:
    """Reverse the axes that TensorFlow's SAME pads by one pixel more at the end, for `even` padding; returns them too.

    With a stride of 2 the windows are then those of equal padding on both sides, whose last pixel no window reaches.
    """
    axes = [axis for axis in (2, 3) if even and x.shape[axis] % 2 == 0]
    return tf.reverse(x, axes) if axes else x, axes


def convolve_by_two(x: tf.Tensor, kernel: tf.Tensor, *, even: bool = False) -> tf.Tensor:
    """Convolve images with stride 2, padded as TensorFlow's SAME, or alike on both sides; there is no gradient of x.

    Squares of 2x2 pixels become channels, so that a convolution with stride 1 and half the kernel's size does it. The
    kernel's height and width are 3, 7, 11 ...
    """
    x, axes = turn(x, even=even)
    if axes:
        kernel = tf.reverse(kernel, [axis - 2 for axis in axes])
        return tf.reverse(convolve_by_two(x, kernel), axes)
    x = tf.pad(x, [[0, 0], [0, 0], [x.shape[2] % 2, 0], [x.shape[3] % 2, 0]])
    images, channels, height, width = x.shape
    x = tf.reshape(x, [-1, channels, height // 2, 2, width // 2, 2])
    x = tf.reshape(tf.transpose(x, [0, 3, 5, 1, 2, 4]), [-1, 4 * channels, height // 2, width // 2])
    half, outputs = (kernel.shape[0] + 1) // 2, kernel.shape[-1]
    kernel = tf.reshape(tf.pad(kernel, [[0, 1], [0, 1], [0, 0], [0, 0]]), [half, 2, half, 2, channels, outputs])
    kernel = tf.reshape(tf.transpose(kernel, [0, 2, 1, 3, 4, 5]), [half, half, 4 * channels, outputs])
    x.set_shape([images, *x.shape[1:]])
    return convolve(x, kernel, first=True)


def scale_rectify(
    x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor, *, maximum: bool = False, even: bool = False
) -> tf.Tensor:
    """Return max(gamma x + beta, 0) by channel.

    With `maximum`, windows of 3x3 pixels in steps of 2 give their largest value, which halves height and width. They
    are padded as TensorFlow's SAME, or by `even` alike on both sides.
    """
    x, axes = turn(x, even=even and maximum)
    if axes:
        return tf.reverse(scale_rectify(x, gamma, beta, maximum=maximum), axes)
    forward = "toolkit_scale_rectify_maximum" if maximum else "toolkit_scale_rectify"

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def run(x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor) -> tuple[tf.Tensor, Gradient]:
        def differentiate(dy: tf.Tensor) -> list[tf.Tensor]:
            gradients = getattr(load(), f"{forward}_gradient")(dy=dy, x=x, gamma=gamma, beta=beta)
            return _shape_all(gradients, [x.shape, gamma.shape, beta.shape])

        sizes = [(size + 1) // 2 if maximum else size for size in x.shape[2:]]
        y = getattr(load(), forward)(x=x, gamma=gamma, beta=beta)
        return _shape(y, [*x.shape[:2], *sizes]), differentiate

    return run(x, tf.convert_to_tensor(gamma), tf.convert_to_tensor(beta))


def run_transition(x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
    """Scale and rectify, average 2x2 pixels, and convolve with a kernel (1, 1, inputs, outputs).

    The last row or column of an odd size is left out. The averages are not kept: the gradient computes them again.
    """

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def run(x: tf.Tensor, *weights: tf.Tensor) -> tuple[tf.Tensor, Gradient]:
        gamma, beta, kernel = weights

        def differentiate(dy: tf.Tensor) -> list[tf.Tensor]:
            gradients = load().toolkit_transition_gradient(dy=dy, x=x, gamma=gamma, beta=beta, kernel=kernel)
            return _shape_all(gradients, [x.shape, *(weight.shape for weight in weights)])

        y = load().toolkit_transition(x=x, gamma=gamma, beta=beta, kernel=kernel)
        return _shape(y, [x.shape[0], kernel.shape[-1], *(size // 2 for size in x.shape[2:])]), differentiate

    return run(x, *map(tf.convert_to_tensor, (gamma, beta, kernel)))


def drop(x: tf.Tensor, rate: float, seed: Sequence[int] | tf.Tensor) -> tf.Tensor:
    """Set a share of the values to 0, and divide the others by the rest.

    The numbers of `seed`, int32 (any,), and the place of a value decide whether it stays.
    """

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def run(x: tf.Tensor) -> tuple[tf.Tensor, Gradient]:
        def differentiate(dy: tf.Tensor) -> tf.Tensor:
            return _shape(load().toolkit_dropout(x=dy, rate=rate, seed=seed), x.shape)

        return _shape(load().toolkit_dropout(x=x, rate=rate, seed=seed), x.shape), differentiate

    return run(x)


def average_squares(x: tf.Tensor) -> tf.Tensor:
    """Average 2x2 pixels, without the last row or column of an odd size. Each step is rounded as IEEE 754 says."""
    odd = [[0, 0], [0, 0], [0, x.shape[2] % 2], [0, x.shape[3] % 2]]
    height, width = x.shape[2] // 2 * 2, x.shape[3] // 2 * 2

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def run(x: tf.Tensor) -> tuple[tf.Tensor, Gradient]:
        def differentiate(dy: tf.Tensor) -> tf.Tensor:
            columns = tf.stack([dy * 0.25] * 2, axis=4)
            squares = tf.reshape(tf.stack([columns] * 2, axis=3), [-1, x.shape[1], height, width])
            return _shape(tf.pad(squares, odd), x.shape)

        rows = x[:, :, 0:height:2, :width] + x[:, :, 1:height:2, :width]
        return (rows[..., 0::2] + rows[..., 1::2]) * 0.25, differentiate

    return run(x)


def average_pixels(x: tf.Tensor) -> tf.Tensor:
    """Average all pixels of each map: (images, channels)."""

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def run(x: tf.Tensor) -> tuple[tf.Tensor, Gradient]:
        def differentiate(dy: tf.Tensor) -> tf.Tensor:
            return _shape(load().toolkit_average_pixels_gradient(dy=dy, size=x.shape[2:]), x.shape)

        return _shape(load().toolkit_average_pixels(x=x), x.shape[:2]), differentiate

    return run(x)


def apply_dense(x: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    """Return the product of x (images, inputs) and the kernel (inputs, outputs), plus the bias."""

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def run(x: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor) -> tuple[tf.Tensor, Gradient]:
        def differentiate(dy: tf.Tensor) -> list[tf.Tensor]:
            gradients = load().toolkit_dense_gradient(dy=dy, x=x, kernel=kernel)
            return _shape_all(gradients, [x.shape, kernel.shape, bias.shape])

        y = load().toolkit_dense(x=x, kernel=kernel, bias=bias)
        return _shape(y, [x.shape[0], kernel.shape[1]]), differentiate

    return run(x, tf.convert_to_tensor(kernel), tf.convert_to_tensor(bias))


def measure_loss(targets: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    """Return the mean over images of the cross entropy with targets, float32 (images, classes)."""

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def run(logits: tf.Tensor) -> tuple[tf.Tensor, Gradient]:
        results = load().toolkit_cross_entropy(logits=logits, targets=targets)
        gradient = _shape(results.gradient, logits.shape)
        return _shape(results.loss, []), lambda upstream: upstream * gradient

    return run(logits)


def update_by_momentum(
    weight: tf.Variable, velocity: tf.Variable, gradient: tf.Tensor, rate: tf.Tensor, *, momentum: float, decay: float
) -> None:
    """Run a step of gradient descent with Nesterov momentum and an L2 penalty, as `train.step.optimizer.make_sgd`."""
    updated = load().toolkit_momentum(
        weight=weight, velocity=velocity, gradient=gradient, rate=rate, momentum=momentum, decay=decay
    )
    weight.assign(_shape(updated.new_weight, weight.shape))
    velocity.assign(_shape(updated.new_velocity, velocity.shape))


def raise_to(base: float, exponent: tf.Tensor) -> tf.Tensor:
    """Return the power of a number, float32, with a whole exponent."""
    return _shape(load().toolkit_power(base=base, exponent=tf.cast(exponent, tf.int32)), [])


class BlockResult(NamedTuple):
    """All maps of a block, normalised but not scaled, and the statistics of the batch."""

    maps: tf.Tensor
    mean: tf.Tensor  # mean, unbiased variance: (channels,)
    variance: tf.Tensor
    inner_mean: tf.Tensor  # those between the convolutions: (layers, inner channels)
    inner_variance: tf.Tensor


def run_block(
    x: tf.Tensor, weights: Sequence[tf.Tensor], *, rate: float = 0.0, seed: Sequence[int] | tf.Tensor = (0,)
) -> BlockResult:
    """Run a dense block in training. A layer has six weights: gamma, beta and kernel of each of its convolutions.

    The results of all convolutions are dropped as by `drop`, with the layer's number after the seed, and then 0 for the
    first convolution and 1 for the second.
    """
    layers, channels = len(weights) // 6, _count_channels(x, weights)

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def run(x: tf.Tensor, *weights: tf.Tensor) -> tuple[tuple[tf.Tensor, ...], Gradient]:
        results = load().toolkit_block(x=x, rate=rate, seed=seed, weights=weights)
        inner = weights[2].shape[3] if weights else 0
        maps = _shape(results.maps, [x.shape[0], channels, *x.shape[2:]])
        statistics = _shape_all(
            [results.mean, results.variance, results.inner_mean, results.inner_variance],
            [[channels]] * 2 + [[layers, inner]] * 2,
        )

        def differentiate(upstream: tf.Tensor, *_: tf.Tensor) -> list[tf.Tensor]:
            # The loss does not use the returned statistics, so their upstream gradients are ignored.
            dx, gradients, _ = load().toolkit_block_gradient(
                upstream=upstream,
                maps=maps,
                between=results.between,
                scale=results.scale,
                inner_mean=results.inner_mean,
                inner_variance=results.inner_variance,
                inner_scale=results.inner_scale,
                rate=rate,
                seed=seed,
                weights=weights,
            )
            return _shape_all([dx, *gradients], [x.shape, *(weight.shape for weight in weights)])

        return (maps, *statistics), differentiate

    return BlockResult(*run(x, *weights))


def infer_block(x: tf.Tensor, weights: Sequence[tf.Tensor], statistics: Sequence[tf.Tensor]) -> tf.Tensor:
    """Run a dense block with given statistics, the last four of a `BlockResult`; returns its maps, normalised."""
    names = BlockResult._fields[1:]
    maps = load().toolkit_block_inference(x=x, weights=weights, **dict(zip(names, statistics, strict=True)))
    return _shape(maps, [x.shape[0], _count_channels(x, weights), *x.shape[2:]])


def _count_channels(x: tf.Tensor, weights: Sequence[tf.Tensor]) -> int:
    return int(x.shape[1] + sum(kernel.shape[3] for kernel in weights[5::6]))


def _shape(tensor: tf.Tensor, sizes: Sequence[int | None]) -> tf.Tensor:
    tensor.set_shape(sizes)
    return tensor


def _shape_all(tensors: Sequence[tf.Tensor], shapes: Sequence[Sequence[int | None]]) -> list[tf.Tensor]:
    return [_shape(tensor, sizes) for tensor, sizes in zip(tensors, shapes, strict=True)]
