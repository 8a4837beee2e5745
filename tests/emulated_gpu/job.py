"""Runs the first steps of the job on random images: ``python -m tests.emulated_gpu.job REQUEST RECORD``.

It is run by the Python with TensorFlow's CUDA build, which has no packages of the tests.
"""

import ctypes
import json
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from train.command_line import parse
from train.config.configuration import TrainConfig
from train.config.presets import read_table
from train.data import Dataset, Split
from train.errors import ToolkitError

WARMUP: Final = 2
"""Steps before the first that is counted: in these, graphs are built and compiled."""

MEASURED: Final = 2
STEPS: Final = WARMUP + MEASURED + 1
"""One more, because the counts of a step are read when the next one begins."""

SYNTHETIC: Final = "synthetic"
"""Name of a data set without data, with images of the size of ImageNet's."""


def register_synthetic() -> None:
    read_table("datasets")[SYNTHETIC] = {
        "shape": [224, 224, 3],
        "classes": 1000,
        "examples": 1024,
        "model": "121",
        "recipe": "quick",
        "epochs": {"paper": 1, "quick": 1, "adam": 1},
        "augment": True,
        "pad": 28,
        "flip": True,
    }


def load(config: TrainConfig) -> Dataset:
    """Return random images of the right shape, in place of `train.data.load`."""
    count = max(int(read_table("datasets")[config.dataset]["examples"]), (STEPS + 1) * config.batch_size)
    numbers = np.random.default_rng(config.seed)

    def draw(count: int) -> Split:
        images = np.frombuffer(numbers.bytes(count * int(np.prod(config.shape))), np.uint8)
        labels = numbers.integers(config.classes, size=count, dtype=np.int32)
        return Split(images.reshape(count, *config.shape), labels)

    names = tuple(str(index) for index in range(config.classes))
    return Dataset(draw(count), draw(min(count, 512)), names, "random bytes")


Counts = dict[str, dict[str, int]]
"""Counts since the start of the process, by group and name. ``native`` defines the groups."""


def read_counts() -> Counts:
    library = ctypes.CDLL("libcuda.so.1")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "counts.json"
        assert library.nullgpu_write(str(path).encode()) == 0
        counts: Counts = json.loads(path.read_text(encoding="utf-8"))
    return counts


def subtract_counts(later: Counts, earlier: Counts) -> Counts:
    difference = {
        group: {name: count - earlier.get(group, {}).get(name, 0) for name, count in names.items()}
        for group, names in later.items()
    }
    return {group: {name: count for name, count in names.items() if count} for group, names in difference.items()}


class RecordedStep:
    def __init__(self, step: Callable[..., Any]) -> None:
        self.step = step
        self.graphs: list[Any] = []
        self.calls = 0

    def __call__(self, *arguments: Any) -> Any:
        from tensorflow.python.eager import context

        self.calls += 1
        if self.calls > 1:
            return self.step(*arguments)
        current = context.context()
        current.enable_graph_collection()  # not earlier, because it fixes the number of threads
        try:
            return self.step(*arguments)
        finally:
            functions = current.export_run_metadata().function_graphs
            self.graphs = [graph for function in functions for graph in function.partition_graphs]
            current.disable_graph_collection()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.step, name)


class CountedStep(RecordedStep):
    """A training step with the counts of each call after the first `WARMUP`. A call ends the step before it."""

    def __init__(self, step: Callable[..., Any]) -> None:
        super().__init__(step)
        self.steps: list[dict[str, Any]] = []
        self._counts: Counts = {}

    def __call__(self, *arguments: Any) -> Any:
        import tensorflow as tf

        if self.calls >= WARMUP:
            counts, memory = read_counts(), tf.config.experimental.get_memory_info("GPU:0")
            if self.calls > WARMUP:
                self.steps.append({"counts": subtract_counts(counts, self._counts), "memory": memory})
            tf.config.experimental.reset_memory_stats("GPU:0")
            self._counts = counts
        return super().__call__(*arguments)


@dataclass
class Hooks:
    training: CountedStep | None = None
    evaluation: RecordedStep | None = None


def run(request: dict[str, Any], record: dict[str, Any], save: Callable[[], None]) -> None:
    """Run the job and fill the record, errors included; `save` writes it, also before TensorFlow may abort."""
    import tensorflow as tf

    register_synthetic()
    config = replace(parse(request["arguments"]), kernels="stock")
    record["config"] = config.as_dict()
    devices = tf.config.list_physical_devices("GPU")
    record["devices"] = [str(tf.config.experimental.get_device_details(each).get("device_name")) for each in devices]
    if not devices:
        record["error"] = {"kind": "NoDevice", "message": "TensorFlow finds no GPU", "node": ""}
        return
    record["counts"] = read_counts()
    save()
    hooks = Hooks()
    try:
        _train(config, hooks)
        if request["elementwise"]:
            record["elementwise"] = run_elementwise()
    except (ToolkitError, tf.errors.OpError) as error:
        node = re.search(r"\{\{node ([^}\s]+)\}\}", str(error))
        record["error"] = {"kind": type(error).__name__, "message": str(error), "node": node[1] if node else ""}
    record["steps"] = hooks.training.steps if hooks.training else []
    record["counts"] = read_counts()
    from tests.emulated_gpu import graphs

    recorded = [graph for step in (hooks.training, hooks.evaluation) if step for graph in step.graphs]
    record["on_host"] = graphs.list_host_operations(recorded)
    record["crossings"] = graphs.list_crossings(recorded)


def _train(config: TrainConfig, hooks: Hooks) -> None:
    from train.run import job
    from train.step import evaluation, training

    compile_training, compile_evaluation = training.compile_train_step, evaluation.compile_evaluation_step

    def hook_training(function: Any, config: TrainConfig, **options: Any) -> Any:
        hooks.training = CountedStep(compile_training(function, config, **options))
        return hooks.training

    def hook_evaluation(function: Any, config: TrainConfig, **options: Any) -> Any:
        hooks.evaluation = RecordedStep(compile_evaluation(function, config, **options))
        return hooks.evaluation

    # Replace these functions in this process, which does nothing else.
    vars(training).update(compile_train_step=hook_training)
    vars(evaluation).update(compile_evaluation_step=hook_evaluation)
    vars(job).update(load=load)
    with tempfile.TemporaryDirectory() as folder:
        job.run(
            replace(
                config, steps=STEPS, epochs=1, validation=0, checkpoint_every=0, profile=None, data_dir="",
                progress="quiet", out=folder,
            )
        )  # fmt: skip


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


def run_elementwise() -> int:
    """Run each elementwise operation with each dtype, and return how many calls succeeded. It loads the code of all.

    TensorFlow's build generates most of these kernels by MLIR, one module for an operation and dtype, and loads a
    module when its kernel is first used.

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


def main() -> None:
    source, target = map(Path, sys.argv[1:])
    request, record = json.loads(source.read_text(encoding="utf-8")), {}

    def save() -> None:
        target.write_text(json.dumps(record), encoding="utf-8")

    if request["mistake"]:
        from tests.emulated_gpu import plants

        plants.plant(request["mistake"])
    run(request, record, save)
    save()


if __name__ == "__main__":
    main()
