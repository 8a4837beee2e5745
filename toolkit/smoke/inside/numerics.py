"""Matrix product, convolution and batch normalization, forward and backward, against float64 written out in NumPy.

The tolerance is not a guess: rounding makes a sum of n products in float32 differ from the exact one by about
√n·u·Σ|aᵢbᵢ|, u = 2⁻²⁴, with high probability (N. Higham and T. Mary, *A New Approach to Probabilistic Rounding Error
Analysis*, SIAM J. Sci. Comput. 41, 2019). Eight times that is allowed, for Winograd and blocked algorithms, and the
evidence says how much of it was used.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from . import loading, reference
from .check import TENSORFLOW, Ask, Check, Evidence, Fail

_UNIT_ROUNDOFF = 2.0**-24
_SAFETY = 8.0
_SEED = 20190


def matmul(ask: Ask) -> Evidence:
    """``tf.linalg.matmul`` and both its gradients."""
    np = loading.numpy()
    draw = np.random.default_rng(_SEED)
    a, b, up = (draw.standard_normal(shape, np.float32) for shape in ((48, 96), (96, 32), (48, 32)))

    def compute(tf: Any, left: Any, right: Any) -> Any:
        return tf.linalg.matmul(left, right)

    return _compare(ask, compute, (a, b), up, reference.matmul(np, a, b, up))


def conv2d(ask: Ask) -> Evidence:
    """``tf.nn.conv2d``, 3 by 3, padded, and both its gradients. Shapes: batch, height, width, channels."""
    np = loading.numpy()
    draw = np.random.default_rng(_SEED)
    shapes = ((4, 12, 12, 16), (3, 3, 16, 24), (4, 12, 12, 24))
    images, kernel, up = (draw.standard_normal(shape, np.float32) for shape in shapes)

    def compute(tf: Any, x: Any, w: Any) -> Any:
        return tf.nn.conv2d(x, w, strides=1, padding="SAME")

    return _compare(ask, compute, (images, kernel), up, reference.conv2d(np, images, kernel, up))


def batch_norm(ask: Ask) -> Evidence:
    """Fused batch normalization in training mode, with the gradients of input, scale and offset."""
    np = loading.numpy()
    draw = np.random.default_rng(_SEED)
    shape, channels = (8, 6, 6, 16), (16,)
    x = (draw.standard_normal(shape, np.float32) * 2 + 3).astype(np.float32)
    scale, offset = (draw.standard_normal(channels, np.float32) for _ in range(2))
    up = draw.standard_normal(shape, np.float32)

    def compute(tf: Any, images: Any, gamma: Any, beta: Any) -> Any:
        return tf.compat.v1.nn.fused_batch_norm(images, gamma, beta, epsilon=reference.EPSILON, is_training=True)[0]

    return _compare(ask, compute, (x, scale, offset), up, reference.batch_norm(np, x, scale, offset, up))


def _compare(
    ask: Ask, compute: Callable[..., Any], inputs: tuple[Any, ...], up: Any, expected: list[reference.Expected]
) -> Evidence:
    """Run on each device under test, forward and backward, and hold every result to its bound."""
    tf = loading.tensorflow()
    np = loading.numpy()
    evidence: Evidence = {}
    with full_precision(tf):
        for device in devices(tf, ask):
            with tf.device(device):
                variables = [tf.constant(value) for value in inputs]
                with tf.GradientTape() as tape:
                    tape.watch(variables)
                    result = compute(tf, *variables)
                gradients = tape.gradient(result, variables, output_gradients=tf.constant(up))
            used = {}
            for want, got in zip(expected, [result, *gradients], strict=True):
                difference = np.abs(np.asarray(got, np.float64) - want.value)
                bound = _SAFETY * want.terms**0.5 * _UNIT_ROUNDOFF * want.magnitude
                used[want.name] = round(float(np.max(difference / bound)), 4)
            evidence[device] = {"fraction_of_tolerance": used}
            if not all(value <= 1 for value in used.values()):
                worst = max(used, key=lambda name: (used[name] != used[name], used[name]))
                raise Fail(
                    f"{worst} on {device} is {used[worst]:.3g} times its tolerance away from float64",
                    remedy="the kernels of this build compute wrongly on this machine: do not train with it",
                    **evidence,
                )
    return evidence


def devices(tf: Any, ask: Ask) -> list[str]:
    """The devices to compute on: always the processor, and the first GPU unless it is to be left alone."""
    return ["/CPU:0", *(["/GPU:0"] if ask.device != "cpu" and loading.gpus(tf) else [])]


@contextmanager
def full_precision(tf: Any) -> Iterator[None]:
    """TensorFloat-32, on by default from capability 8.0, keeps 10 bits: far outside a float32 bound."""
    config = tf.config.experimental
    before = config.tensor_float_32_execution_enabled()
    config.enable_tensor_float_32_execution(False)
    try:
        yield
    finally:
        config.enable_tensor_float_32_execution(before)


CHECKS = (
    Check("numerics.matmul", "matmul and its gradients agree with float64", matmul, 120, (TENSORFLOW,)),
    Check("numerics.conv2d", "conv2d and its gradients agree with float64", conv2d, 120, (TENSORFLOW,)),
    Check("numerics.batch_norm", "batch norm and its gradients agree with float64", batch_norm, 120, (TENSORFLOW,)),
)
