"""Runs each elementwise operation once on the device, in each dtype, so that the code of all of them is loaded.

TensorFlow's build generates most of these kernels by MLIR, one module for an operation and dtype, and loads a module
when its kernel is first used.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

UNARY: Final = (
    "Abs Acos Acosh Angle Asin Asinh Atan Atanh Ceil ComplexAbs Conj Cos Cosh Digamma Elu Erf Erfc Erfinv Exp Expm1 "
    "Floor Imag Inv Invert IsFinite IsInf IsNan Lgamma Log Log1p LogicalNot Ndtri Neg OnesLike Real Reciprocal Relu "
    "Relu6 Rint Round Rsqrt Selu Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Square Tan Tanh ZerosLike"
)
BINARY: Final = (
    "Add AddV2 Atan2 BitwiseAnd BitwiseOr BitwiseXor Complex Div DivNoNan Equal FloorDiv FloorMod Greater GreaterEqual "
    "LeftShift Less LessEqual LogicalAnd LogicalOr Maximum Minimum Mul MulNoNan NextAfter NotEqual Polygamma Pow "
    "RealDiv ReluGrad RightShift SquaredDifference Sub TruncateDiv Xdivy Xlog1py Xlogy Zeta"
)
DTYPES: Final = (
    "bool half bfloat16 float32 float64 int8 int16 int32 int64 uint8 uint16 uint32 uint64 complex64 complex128"
)


def run() -> int:
    """Run what there is for each operation and dtype; return how many calls succeeded.

    Raises what TensorFlow raises if a kernel cannot be loaded or launched.
    """
    import tensorflow as tf

    done, soft = 0, tf.config.get_soft_device_placement()
    tf.config.set_soft_device_placement(False)  # nothing is to run on the processor instead
    try:
        with tf.device("CPU:0"):
            values = {name: tf.ones((2, 3), getattr(tf, name)) for name in DTYPES.split()}
        with tf.device("GPU:0"):
            for call in _list_calls(tf, values):
                try:
                    call()
                # What an operation does not have for a dtype is not an error here.
                except (tf.errors.InvalidArgumentError, tf.errors.NotFoundError, TypeError):
                    continue
                done += 1
    finally:
        tf.config.set_soft_device_placement(soft)
    return done


def _list_calls(tf: Any, values: dict[str, Any]) -> Iterator[Callable[[], Any]]:
    for value in values.values():
        for operation in UNARY.split():
            yield partial(_call, tf, operation, value)
        for operation in BINARY.split():
            yield partial(_call, tf, operation, value, value)
        for other in values:
            yield partial(tf.raw_ops.Cast, x=value, DstT=getattr(tf, other))


def _call(tf: Any, operation: str, *operands: Any) -> Any:
    from tensorflow.python.framework import op_def_registry

    names = [argument.name for argument in op_def_registry.get(operation).input_arg]
    return getattr(tf.raw_ops, operation)(**dict(zip(names, operands, strict=True)))
