"""XLA really compiles, and what it compiles computes the same."""

from typing import Any

from . import loading, numerics
from .check import TENSORFLOW, Ask, Check, Evidence, Fail

_TOLERANCE = 1e-5


def compiles(ask: Ask) -> Evidence:
    """A function with ``jit_compile=True`` becomes an XLA module, and a function that XLA cannot compile is refused.

    The refusal is the control: where ``jit_compile`` is silently ignored, strings would work.
    """
    tf = loading.tensorflow()
    evidence: Evidence = {}
    try:
        tf.function(tf.strings.length, jit_compile=True)(tf.constant("strings have no XLA kernel"))
    except tf.errors.InvalidArgumentError as error:
        evidence["refuses"] = str(error.message).splitlines()[0][:200]
    else:
        raise Fail("jit_compile=True ran an op that XLA cannot compile", remedy="build with XLA", **evidence)
    x = tf.reshape(tf.linspace(-2.0, 2.0, 64), [8, 8])
    for device in numerics.devices(tf, ask):
        with tf.device(device):
            module = str(_program(tf, jit_compile=True).experimental_get_compiler_ir(x)(stage="optimized_hlo"))
        fusions = module.count("fusion(")
        evidence[device] = {"module": module.splitlines()[0][:200] if module else "", "fusions": fusions}
        if not module.startswith("HloModule"):
            raise Fail("XLA gave no optimized HLO module", remedy="build with XLA: define with_xla_support", **evidence)
    return evidence


def agrees(ask: Ask) -> Evidence:
    """The compiled function and its compiled gradient give what op-by-op execution gives, within 1e-5 of its scale."""
    tf = loading.tensorflow()
    np = loading.numpy()
    evidence: Evidence = {}
    x = tf.reshape(tf.linspace(-2.0, 2.0, 64), [8, 8])
    for device in numerics.devices(tf, ask):
        with tf.device(device), numerics.full_precision(tf):
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
    """A product, a nonlinearity and a reduction, with their gradient: enough for XLA to fuse."""

    def value_and_gradient(x: Any) -> tuple[Any, Any]:
        with tf.GradientTape() as tape:
            tape.watch(x)
            value = tf.reduce_sum(tf.nn.sigmoid(tf.linalg.matmul(x, x, transpose_b=True)) * tf.exp(-x * x), axis=1)
        return value, tape.gradient(value, x)

    return tf.function(value_and_gradient, jit_compile=jit_compile)


CHECKS = (
    Check("xla.compiles", "XLA compiles what it can and refuses what it cannot", compiles, 120, (TENSORFLOW,)),
    Check("xla.agrees", "XLA agrees with op-by-op execution", agrees, 120, (TENSORFLOW,)),
)
