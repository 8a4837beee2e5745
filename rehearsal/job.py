"""Runs the rehearsed job on random images with emulated CUDA: ``python -m rehearsal.job REQUEST RECORD``."""

import ctypes
import json
import re
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from rehearsal.request import Request
from train.config.configuration import TrainConfig
from train.config.presets import read_table
from train.data import Dataset, Split
from train.errors import CheckError, ToolkitError
from train.step import runtime
from train.step.budget import LARGEST, UNIT

WATCHED: Final = 512
"""Number of test examples. Two batches of the evaluation are enough."""


def make_loader(steps: int) -> Callable[[TrainConfig], Dataset]:
    """Return a replacement of `train.data.load`: random images of the right shape, enough for so many steps."""

    def load(config: TrainConfig) -> Dataset:
        count = max(int(read_table("datasets")[config.dataset]["examples"]), (steps + 1) * config.batch_size)
        numbers = np.random.default_rng(config.seed)

        def draw(count: int) -> Split:
            images = np.frombuffer(numbers.bytes(count * int(np.prod(config.shape))), np.uint8)
            labels = numbers.integers(config.classes, size=count, dtype=np.int32)
            return Split(images.reshape(count, *config.shape), labels)

        names = tuple(str(index) for index in range(config.classes))
        return Dataset(draw(count), draw(min(count, WATCHED)), names, "random bytes")

    return load


Counts = dict[str, dict[str, int]]
"""Counts since the start of the process, by group and name. ``native`` defines the groups."""


def read_counts() -> Counts:
    """Read all counts so far; raises a CheckError if the CUDA driver is not the emulated one."""
    library = ctypes.CDLL("libcuda.so.1")
    if not hasattr(library, "nullgpu_write"):
        raise CheckError(
            "the CUDA driver here is not the emulated one", remedy="start a rehearsal by python -m rehearsal"
        )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "counts.json"
        if library.nullgpu_write(str(path).encode()):
            raise CheckError(f"the counts of the emulated GPU cannot be written to {folder}", remedy="free disk space")
        counts: Counts = json.loads(path.read_text(encoding="utf-8"))
    return counts


def subtract_counts(later: Counts, earlier: Counts) -> Counts:
    difference = {
        group: {name: count - earlier.get(group, {}).get(name, 0) for name, count in names.items()}
        for group, names in later.items()
    }
    return {group: {name: count for name, count in names.items() if count} for group, names in difference.items()}


TRIES: Final = 3
"""Number of trials of a batch size that should fit. Each is a little smaller than the one before."""


class RecordedStep:
    def __init__(self, step: Callable[..., Any]) -> None:
        self.step = step
        self.graphs: list[Any] = []
        self.calls = 0

    def __call__(self, *arguments: Any) -> Any:
        from tensorflow.python.eager import context

        from rehearsal import graphs

        self.calls += 1
        if self.calls > 1:
            return self.step(*arguments)
        current = context.context()
        current.enable_graph_collection()  # not earlier, because it fixes the number of threads
        try:
            return self.step(*arguments)
        finally:
            self.graphs = list(graphs.read_graphs(current.export_run_metadata()))
            current.disable_graph_collection()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.step, name)


class CountedStep(RecordedStep):
    """A training step with the counts of each call after the first `warmup`. A call ends the step before it."""

    def __init__(self, step: Callable[..., Any], warmup: int) -> None:
        super().__init__(step)
        self.warmup = warmup
        self.steps: list[dict[str, Any]] = []
        self.arguments: tuple[Any, ...] = ()
        self._counts: Counts = {}

    def __call__(self, *arguments: Any) -> Any:
        import tensorflow as tf

        if self.calls >= self.warmup:
            counts, memory = read_counts(), tf.config.experimental.get_memory_info("GPU:0")
            if self.calls > self.warmup:
                self.steps.append({"counts": subtract_counts(counts, self._counts), "memory": memory})
            tf.config.experimental.reset_memory_stats("GPU:0")
            self._counts = counts
        self.arguments = arguments
        return super().__call__(*arguments)


@dataclass
class Hooks:
    training: CountedStep | None = None
    evaluation: RecordedStep | None = None


def run(request: Request, record: dict[str, Any], save: Callable[[], None]) -> None:
    """Run the job and fill the record, errors included; `save` writes it, also before TensorFlow may abort."""
    import tensorflow as tf

    runtime.allow_emulation()
    devices = tf.config.list_physical_devices("GPU")
    record["devices"] = [str(tf.config.experimental.get_device_details(each).get("device_name")) for each in devices]
    record["tensorflow"] = tf.version.VERSION
    if not devices:
        record["error"] = {"kind": "NoDevice", "message": "TensorFlow finds no GPU", "node": "", "operation": ""}
        return
    record["counts"] = read_counts()
    save()
    hooks = Hooks()
    try:
        record["job_peak_bytes"] = _train(request, hooks)["result"]["device_peak_bytes"]
        if request.find_batch and hooks.training:
            record["batches"] = find_largest_batch(hooks.training, request.config.batch_size)
        if request.machine_code:
            record["elementwise"] = run_elementwise()
    except (ToolkitError, tf.errors.OpError) as error:
        record["error"] = _describe(error)
    except Exception as error:  # noqa: BLE001 - whatever ends the job belongs in the record
        record["error"] = _describe(error) | {"traceback": traceback.format_exc()}
    record["steps"] = hooks.training.steps if hooks.training else []
    record["counts"] = read_counts()
    _record_placement(record, [each for each in (hooks.training, hooks.evaluation) if each])


def _train(request: Request, hooks: Hooks) -> dict[str, Any]:
    from train.run import job
    from train.step import evaluation, training

    compile_training, compile_evaluation = training.compile_train_step, evaluation.compile_evaluation_step

    def hook_training(function: Any, config: TrainConfig, **options: Any) -> Any:
        hooks.training = CountedStep(compile_training(function, config, **options), request.warmup)
        return hooks.training

    def hook_evaluation(function: Any, config: TrainConfig, **options: Any) -> Any:
        hooks.evaluation = RecordedStep(compile_evaluation(function, config, **options))
        return hooks.evaluation

    # Replace these functions in this process, which does nothing else.
    vars(training).update(compile_train_step=hook_training)
    vars(evaluation).update(compile_evaluation_step=hook_evaluation)
    vars(job).update(load=make_loader(request.steps))
    with tempfile.TemporaryDirectory(prefix="rehearsal-") as folder:
        return job.run(
            replace(
                request.config, steps=request.steps, epochs=1, validation=0, checkpoint_every=0, profile=None,
                data_dir="", progress="quiet", out=folder,
            )
        )  # fmt: skip


def _record_placement(record: dict[str, Any], steps: list[RecordedStep]) -> None:
    from rehearsal import graphs

    recorded = [graph for step in steps for graph in step.graphs]
    record["on_host"] = [each._asdict() for each in graphs.list_host_operations(recorded)]
    record["crossings"] = [each._asdict() for each in graphs.list_crossings(recorded)]
    error = record.get("error")
    if error and error["node"]:
        kinds = (node.op for graph in recorded for node in graph.node if node.name.endswith(error["node"]))
        error["operation"] = next(kinds, "")


def _describe(error: BaseException) -> dict[str, str]:
    message = str(error)
    node = re.search(r"\{\{node ([^}\s]+)\}\}", message)
    return {"kind": type(error).__name__, "message": message, "node": node[1] if node else "", "operation": ""}


def find_largest_batch(counted: CountedStep, size: int) -> dict[str, Any]:
    """Find the largest batch for a step that ran with `size`: ``limit``, ``tried`` sizes and peaks, ``largest``."""
    limit = runtime.read_device_limit()
    tried = {size: int(counted.steps[-1]["memory"]["peak"])}
    other = max(UNIT, size // 2) if size > UNIT else 2 * UNIT
    tried[other] = measure_peak(counted, size, other)
    low, high = sorted(tried)
    slope = max((tried[high] - tried[low]) / (high - low), 1.0)
    wanted = min(LARGEST, int(low + (limit - tried[low]) / slope) // UNIT * UNIT)
    for _ in range(TRIES):
        if wanted < UNIT or wanted in tried:
            break
        tried[wanted] = measure_peak(counted, size, wanted)
        if tried[wanted]:
            break
        wanted = int(0.95 * wanted) // UNIT * UNIT
    return {"limit": limit, "tried": tried, "largest": max(each for each, peak in tried.items() if peak)}


def measure_peak(counted: CountedStep, size: int, wanted: int) -> int:
    """Return the peak memory in bytes of two steps with batches of another size; 0 if they do not fit."""
    import tensorflow as tf

    def resize(value: Any) -> Any:
        array = np.asarray(value)
        batched = array.ndim and array.shape[0] == size
        return np.zeros((wanted, *array.shape[1:]), array.dtype) if batched else value

    arguments = [resize(value) for value in counted.arguments]
    tf.config.experimental.reset_memory_stats("GPU:0")
    try:
        for _ in range(2):
            counted.step(*arguments)
    except tf.errors.ResourceExhaustedError:
        return 0
    return int(tf.config.experimental.get_memory_info("GPU:0")["peak"])


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


def main(argv: list[str] | None = None) -> int:
    source, target = sys.argv[1:] if argv is None else argv
    record: dict[str, Any] = {}

    def save() -> None:
        Path(target).write_text(json.dumps(record), encoding="utf-8")

    run(Request.read(Path(source).read_text(encoding="utf-8")), record, save)
    save()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
