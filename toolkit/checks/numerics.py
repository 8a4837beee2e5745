"""Checks that TensorFlow computes correctly: against float64 in NumPy, compiled by XLA, and twice to the bit.

The tolerance follows from rounding: a sum of n products in float32 differs from the exact one by about √n·u·Σ|aᵢbᵢ|, u
= 2⁻²⁴, with high probability (N. Higham and T. Mary, *A New Approach to Probabilistic Rounding Error Analysis*, SIAM J.
Sci. Comput. 41, 2019). Eight times that is allowed, for Winograd and blocked algorithms, and the evidence says how much
of it was used.
"""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from .check import (
    TENSORFLOW,
    Check,
    Evidence,
    Expectation,
    Fail,
    find_gpus,
    load_numpy,
    load_tensorflow,
    require_attribute,
)

EPSILON = 1e-3


@dataclass(frozen=True)
class Expected:
    name: str  # what it is
    value: Any  # the float64 result
    terms: int  # how many rounded operations lead from the inputs to one element
    magnitude: Any  # the same computation on absolute values; the scale of its rounding error


def expect_matmul(np: Any, a: Any, b: Any, up: Any) -> list[Expected]:
    """Return C = AB for A (m, k), B (k, n); dA = dC Bᵀ, dB = Aᵀ dC."""
    a, b, up = (x.astype(np.float64) for x in (a, b, up))
    triples = (("result", a, b), ("gradient of left", up, b.T), ("gradient of right", a.T, up))
    return [Expected(name, x @ y, x.shape[1], np.abs(x) @ np.abs(y)) for name, x, y in triples]


def expect_conv2d(np: Any, images: Any, kernel: Any, up: Any) -> list[Expected]:
    """Return the correlation, stride 1, same size: images (n, h, w, c), kernel (r, s, c, k), up (n, h, w, k)."""
    images, kernel, up = (x.astype(np.float64) for x in (images, kernel, up))
    terms = (kernel[..., 0].size, kernel[:, :, 0].size, up[..., 0].size)
    names = ("result", "gradient of images", "gradient of kernel")
    values = _conv2d(np, images, kernel, up)
    magnitudes = _conv2d(np, np.abs(images), np.abs(kernel), np.abs(up))
    return [Expected(*parts) for parts in zip(names, values, terms, magnitudes, strict=True)]


def _conv2d(np: Any, images: Any, kernel: Any, up: Any) -> tuple[Any, Any, Any]:
    rows, columns = kernel.shape[:2]
    height, width = images.shape[1:3]
    padded = np.pad(images, ((0, 0), (rows // 2, rows // 2), (columns // 2, columns // 2), (0, 0)))
    result = np.zeros(up.shape)
    padded_gradient = np.zeros(padded.shape)
    kernel_gradient = np.zeros(kernel.shape)
    for r in range(rows):
        for s in range(columns):
            window = (slice(None), slice(r, r + height), slice(s, s + width))
            result += padded[window] @ kernel[r, s]
            padded_gradient[window] += up @ kernel[r, s].T
            kernel_gradient[r, s] = np.einsum("nhwc,nhwk->ck", padded[window], up)
    inner = (slice(None), slice(rows // 2, rows // 2 + height), slice(columns // 2, columns // 2 + width))
    return result, padded_gradient[inner], kernel_gradient


def expect_batch_norm(np: Any, x: Any, scale: Any, offset: Any, up: Any) -> list[Expected]:
    """Return scale·(x - μ)/√(σ² + ε) + offset over all axes but the last (Ioffe and Szegedy, arXiv:1502.03167)."""
    x, scale, offset, up = (value.astype(np.float64) for value in (x, scale, offset, up))
    axes = tuple(range(x.ndim - 1))
    count = x[..., 0].size
    mean = x.mean(axes)
    deviation = np.sqrt(x.var(axes) + EPSILON)
    normal = (x - mean) / deviation
    # The cancellation in x - μ costs |x| + |μ|, not |x - μ|.
    size = (np.abs(x) + np.abs(mean)) / deviation
    up_size = np.abs(up)
    bias = up.mean(axes)
    slope = (up * normal).mean(axes)
    slope_size = (up_size * size).mean(axes)
    return [
        Expected("result", scale * normal + offset, count, np.abs(scale) * size + np.abs(offset)),
        Expected(
            "gradient of images",
            scale / deviation * (up - bias - normal * slope),
            count,
            np.abs(scale) / deviation * (up_size + up_size.mean(axes) + size * slope_size),
        ),
        Expected("gradient of scale", (up * normal).sum(axes), count, (up_size * size).sum(axes)),
        Expected("gradient of offset", up.sum(axes), count, up_size.sum(axes)),
    ]


_UNIT_ROUNDOFF = 2.0**-24
_SAFETY = 8.0
_SEED = 20190


def matmul(expectation: Expectation) -> Evidence:
    np = load_numpy()
    draw = np.random.default_rng(_SEED)
    a, b, up = (draw.standard_normal(shape, np.float32) for shape in ((48, 96), (96, 32), (48, 32)))

    def compute(tf: Any, left: Any, right: Any) -> Any:
        return tf.linalg.matmul(left, right)

    return _compare(expectation, compute, (a, b), up, expect_matmul(np, a, b, up))


def conv2d(expectation: Expectation) -> Evidence:
    np = load_numpy()
    draw = np.random.default_rng(_SEED)
    shapes = ((4, 12, 12, 16), (3, 3, 16, 24), (4, 12, 12, 24))
    images, kernel, up = (draw.standard_normal(shape, np.float32) for shape in shapes)

    def compute(tf: Any, x: Any, w: Any) -> Any:
        return tf.nn.conv2d(x, w, strides=1, padding="SAME")

    return _compare(expectation, compute, (images, kernel), up, expect_conv2d(np, images, kernel, up))


def batch_norm(expectation: Expectation) -> Evidence:
    np = load_numpy()
    draw = np.random.default_rng(_SEED)
    shape, channels = (8, 6, 6, 16), (16,)
    x = (draw.standard_normal(shape, np.float32) * 2 + 3).astype(np.float32)
    scale, offset = (draw.standard_normal(channels, np.float32) for _ in range(2))
    up = draw.standard_normal(shape, np.float32)

    def compute(tf: Any, images: Any, gamma: Any, beta: Any) -> Any:
        return tf.compat.v1.nn.fused_batch_norm(images, gamma, beta, epsilon=EPSILON, is_training=True)[0]

    return _compare(expectation, compute, (x, scale, offset), up, expect_batch_norm(np, x, scale, offset, up))


def _compare(
    expectation: Expectation, compute: Callable[..., Any], inputs: tuple[Any, ...], up: Any, expected: list[Expected]
) -> Evidence:
    tf = load_tensorflow()
    np = load_numpy()
    evidence: Evidence = {}
    with full_precision(tf):
        for device in devices(tf, expectation):
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


def devices(tf: Any, expectation: Expectation) -> list[str]:
    return ["/CPU:0", *(["/GPU:0"] if expectation.device != "cpu" and find_gpus(tf) else [])]


@contextmanager
def full_precision(tf: Any) -> Iterator[None]:
    """Switch TensorFloat-32 off: on by default from capability 8.0, it keeps 10 bits, too few for a float32 bound."""
    config = tf.config.experimental
    before = config.tensor_float_32_execution_enabled()
    config.enable_tensor_float_32_execution(False)
    try:
        yield
    finally:
        config.enable_tensor_float_32_execution(before)


_TOLERANCE = 1e-5


def compiles(expectation: Expectation) -> Evidence:
    """Check that ``jit_compile=True`` compiles, and, as the control, refuses strings, which XLA cannot compile."""
    tf = load_tensorflow()
    evidence: Evidence = {}
    try:
        tf.function(tf.strings.length, jit_compile=True)(tf.constant("strings have no XLA kernel"))
    except tf.errors.InvalidArgumentError as error:
        evidence["refuses"] = str(error.message).splitlines()[0][:200]
    else:
        raise Fail("jit_compile=True ran an op that XLA cannot compile", remedy="build with XLA", **evidence)
    x = tf.reshape(tf.linspace(-2.0, 2.0, 64), [8, 8])
    for device in devices(tf, expectation):
        with tf.device(device):
            module = str(_program(tf, jit_compile=True).experimental_get_compiler_ir(x)(stage="optimized_hlo"))
        fusions = module.count("fusion(")
        evidence[device] = {"module": module.splitlines()[0][:200] if module else "", "fusions": fusions}
        if not module.startswith("HloModule"):
            raise Fail("XLA gave no optimized HLO module", remedy="build with XLA: define with_xla_support", **evidence)
    return evidence


def agrees(expectation: Expectation) -> Evidence:
    """Check that a compiled function and its gradient give what op-by-op execution gives, within 1e-5 of its scale."""
    tf = load_tensorflow()
    np = load_numpy()
    evidence: Evidence = {}
    x = tf.reshape(tf.linspace(-2.0, 2.0, 64), [8, 8])
    for device in devices(tf, expectation):
        with tf.device(device), full_precision(tf):
            plain = [np.asarray(value, np.float64) for value in _program(tf, jit_compile=None)(x)]
            compiled = [np.asarray(value, np.float64) for value in _program(tf, jit_compile=True)(x)]
        errors = [
            float(np.max(np.abs(have - want)) / np.max(np.abs(want)))
            for have, want in zip(compiled, plain, strict=True)
        ]
        evidence[device] = {"relative_error": {"result": errors[0], "gradient": errors[1]}, "tolerance": _TOLERANCE}
        if not all(error <= _TOLERANCE for error in errors):
            raise Fail(
                f"compiled and op-by-op results differ by {max(errors):.2g} on {device}",
                remedy="train without jit_compile, and report the evidence",
                **evidence,
            )
    return evidence


def _program(tf: Any, *, jit_compile: bool | None) -> Any:
    def value_and_gradient(x: Any) -> tuple[Any, Any]:
        with tf.GradientTape() as tape:
            tape.watch(x)
            value = tf.reduce_sum(tf.nn.sigmoid(tf.linalg.matmul(x, x, transpose_b=True)) * tf.exp(-x * x), axis=1)
        return value, tape.gradient(value, x)

    return tf.function(value_and_gradient, jit_compile=jit_compile)


_STEPS = 3
_TRAINING_SEED = (2019, 0)


def training(expectation: Expectation) -> Evidence:
    """Train a small network twice from one seed, with op determinism, and compare the weights bit by bit.

    Convolution, batch norm, dropout, a gather whose gradient is a scatter, and a loss: the kinds of op that have
    nondeterministic GPU kernels. Op determinism stays on in this process: this check comes last.
    """
    tf = load_tensorflow()
    require_attribute(tf, "config.experimental.enable_op_determinism")()
    evidence: Evidence = {}
    for device in devices(tf, expectation):
        with tf.device(device):
            first, second = _train(tf), _train(tf)
        evidence[device] = {"steps": _STEPS, "sha256": [first, second]}
        if first != second:
            raise Fail(
                f"the same {_STEPS} training steps gave different weights on {device}",
                remedy="an op of this build ignores determinism: runs made with it cannot be reproduced to the bit",
                **evidence,
            )
    return evidence


def _train(tf: Any) -> str:
    draw = tf.random.stateless_normal
    images = draw([16, 8, 8, 3], seed=_TRAINING_SEED)
    labels = tf.range(16) % 4
    kernel = tf.Variable(draw([3, 3, 3, 8], seed=(1, 0)) * 0.2)
    table = tf.Variable(draw([4, 8], seed=(2, 0)) * 0.2)
    scale, offset = tf.Variable(tf.ones([8])), tf.Variable(tf.zeros([8]))
    weights = [kernel, table, scale, offset]
    for step in range(_STEPS):
        with tf.GradientTape() as tape:
            x = tf.nn.conv2d(images, kernel, strides=1, padding="SAME")
            x = tf.compat.v1.nn.fused_batch_norm(x, scale, offset, is_training=True)[0]
            x = tf.nn.experimental.stateless_dropout(tf.nn.relu(x), rate=0.2, seed=(3, step))
            # Sixteen lookups of four rows: the gradient adds up many updates to one row.
            logits = tf.reduce_mean(x, [1, 2]) @ tf.transpose(table) + tf.reduce_sum(tf.gather(table, labels), 1, True)
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
        for weight, gradient in zip(weights, tape.gradient(loss, weights), strict=True):
            weight.assign_sub(0.1 * tf.convert_to_tensor(gradient))
    digest = hashlib.sha256()
    for weight in weights:
        digest.update(weight.numpy().tobytes())
    return digest.hexdigest()


CHECKS = (
    Check("numerics.matmul", "matmul and its gradients agree with float64", matmul, 120, (TENSORFLOW,)),
    Check("numerics.conv2d", "conv2d and its gradients agree with float64", conv2d, 120, (TENSORFLOW,)),
    Check("numerics.batch_norm", "batch norm and its gradients agree with float64", batch_norm, 120, (TENSORFLOW,)),
    Check("xla.compiles", "XLA compiles what it can and refuses what it cannot", compiles, 120, (TENSORFLOW,)),
    Check("xla.agrees", "XLA agrees with op-by-op execution", agrees, 120, (TENSORFLOW,)),
    Check("determinism.training", "the same training steps twice give the same bytes", training, 180, (TENSORFLOW,)),
)
