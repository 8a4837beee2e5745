import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any, get_args

import pytest
import tensorflow as tf

from rehearsal import audit, graphs
from train.config.configuration import Memory, Precision
from train.config.resolution import resolve

SCALAR, VECTOR, MAPS = tf.TensorSpec(()), tf.TensorSpec((64,)), tf.TensorSpec((8, 4, 4, 16))
NUMBERS = tf.TensorSpec((64,), tf.int32)


def find(function: Callable[..., Any], *arguments: tf.TensorSpec) -> list[tuple[str, str]]:
    report = audit.audit_graph(graphs.optimize(graphs.trace("planted", function, arguments)))
    return [(finding.kind, finding.operation) for finding in report.findings]


def test_nothing_is_found_in_what_a_gpu_runs_well() -> None:
    weight = tf.Variable(tf.ones((16, 16)))

    def step(maps: tf.Tensor, rate: tf.Tensor) -> tf.Tensor:
        pixels = tf.reshape(maps, [-1, 16])
        weight.assign_sub(rate * tf.matmul(pixels, pixels @ weight, transpose_a=True))
        return tf.reduce_mean(pixels @ weight)

    report = audit.audit_graph(graphs.optimize(graphs.trace("clean", step, [MAPS, SCALAR])))
    assert not report.findings
    assert report.inputs == ("maps", "rate")
    assert report.nodes > 5


def test_an_int32_variable_has_no_kernel() -> None:
    seed = tf.Variable([0, 0], dtype=tf.int32)

    def step(x: tf.Tensor) -> tf.Tensor:
        seed.assign_add([0, 1])
        return x * tf.random.stateless_uniform((64,), seed, alg="philox")

    found = find(step, VECTOR)
    assert found[0] == ("dtype", "VarHandleOp")


def test_an_int64_variable_has_one() -> None:
    count = tf.Variable(0, dtype=tf.int64)
    assert not find(lambda x: x * tf.cast(count.assign_add(1), tf.float32), VECTOR)


@pytest.mark.parametrize(
    "operation", [tf.raw_ops.FusedBatchNormGrad, tf.raw_ops.FusedBatchNormGradV2, tf.raw_ops.FusedBatchNormGradV3]
)
@pytest.mark.parametrize("training", [False, True])
def test_the_gradient_of_a_norm_in_inference_refuses_determinism(operation: Any, training: bool) -> None:
    def step(maps: tf.Tensor) -> tf.Tensor:
        ones = tf.ones(16)
        more = {"reserve_space_3": ones} if operation is tf.raw_ops.FusedBatchNormGradV3 else {}
        known = {"reserve_space_1": ones, "reserve_space_2": ones, "is_training": training, **more}
        return operation(y_backprop=maps, x=maps, scale=ones, **known)[0]

    found = find(step, MAPS)
    assert [kind for kind, _ in found] == ([] if training else ["determinism"])


def test_a_refusal_names_the_place_in_tensorflows_sources() -> None:
    def step(maps: tf.Tensor) -> tf.Tensor:
        return tf.image.adjust_contrast(maps, 2.0)

    report = audit.audit_graph(graphs.trace("planted", step, [MAPS]))
    (finding,) = report.findings
    assert finding.kind == "determinism"
    assert "AdjustContrastv2 is not currently available" in finding.reason
    assert "tensorflow/core/kernels/image/adjust_contrast_op.cc:432" in finding.reason


def test_a_scatter_goes_through_the_host() -> None:
    table = tf.Variable(tf.zeros(64))
    updates = tf.TensorSpec((64,), tf.int64)
    found = find(lambda x, rows: table.scatter_add(tf.IndexedSlices(x, rows)), VECTOR, updates)
    assert ("determinism", "ResourceScatterAdd") in found


def test_random_numbers_without_a_seed_are_refused() -> None:
    def step(x: tf.Tensor, seed: int) -> tf.Tensor:
        return x + tf.raw_ops.RandomUniform(shape=[64], dtype=tf.float32, seed=seed, seed2=0)

    assert find(lambda x: step(x, 0), VECTOR) == [("determinism", "RandomUniform")]
    assert find(lambda x: step(x, 1), VECTOR) == []


def test_an_operation_without_a_gpu_kernel() -> None:
    found = find(lambda x: tf.raw_ops.NthElement(input=x + 1.0, n=1) * 2.0, MAPS)
    assert ("kernel", "NthElement") in found
    assert ("copy", "NthElement") in found  # its input is fetched from the device
    assert ("copy", "Mul") in found  # its output is sent back
    assert len(found) == 3


def test_a_dtype_without_a_gpu_kernel() -> None:
    long = tf.TensorSpec((8, 8), tf.int64)
    found = find(lambda x: tf.matmul(x, x), long)
    assert [kind for kind, operation in found if operation == "MatMul"] == ["dtype"]


def test_a_round_trip_through_numpy() -> None:
    def step(x: tf.Tensor) -> tf.Tensor:
        return tf.numpy_function(lambda value: value + 1, [x * 2.0], tf.float32) * 2.0

    found = find(step, VECTOR)
    assert ("kernel", "PyFunc") in found
    assert ("copy", "PyFunc") in found
    assert ("copy", "Mul") in found


def test_comparing_int32_copies_to_the_host() -> None:
    logits = tf.TensorSpec((64, 10))
    found = find(lambda x, y: tf.reduce_sum(tf.cast(tf.argmax(x, -1, tf.int32) == y, tf.int32)), logits, NUMBERS)
    assert [kind for kind, _ in found] == ["copy"] * 3
    assert {operation for _, operation in found} == {"Equal", "Cast", "Sum"}
    longs = tf.TensorSpec((64,), tf.int64)
    assert not find(lambda x, y: tf.reduce_sum(tf.cast(tf.argmax(x, -1) == y, tf.float32)), logits, longs)


def test_a_condition_is_read_by_the_host() -> None:
    weight = tf.Variable(1.0)

    def step(x: tf.Tensor) -> None:
        finite = tf.reduce_all(tf.math.is_finite(x))
        tf.cond(finite, lambda: weight.assign_add(tf.reduce_sum(x)), lambda: weight)

    found = find(step, VECTOR)
    assert [kind for kind, _ in found] == ["copy"]


def test_what_a_branch_does_is_seen() -> None:
    weight = tf.Variable(tf.ones(MAPS.shape[:-1]))
    flag = tf.TensorSpec((), tf.bool)

    def step(x: tf.Tensor, use: tf.Tensor) -> None:
        tf.cond(use, lambda: weight.assign(tf.raw_ops.NthElement(input=x, n=1)), lambda: weight)

    traced = graphs.trace("planted", step, [MAPS, flag])
    for graph in (traced, graphs.optimize(traced)):  # called by an If, then inlined into the graph
        report = audit.audit_graph(graph)
        assert "NthElement" in [finding.operation for finding in report.findings if finding.kind == "kernel"]


@pytest.mark.parametrize(("parts", "kinds"), [(15, []), (16, ["copy"])])
def test_joining_many_parts_copies_a_table(parts: int, kinds: list[str]) -> None:
    def step(x: tf.Tensor) -> tf.Tensor:
        return tf.concat([x * float(number) for number in range(2, parts + 2)], axis=0)

    found = find(step, VECTOR)
    assert [kind for kind, _ in found] == kinds


def test_shapes_known_before_cost_nothing() -> None:
    def step(x: tf.Tensor) -> tf.Tensor:
        rows = tf.range(tf.shape(x)[0])
        return tf.gather(x, rows) * tf.cast(tf.reduce_prod(tf.shape(x)), tf.float32)

    assert ("copy", "Prod") in [
        (finding.kind, finding.operation) for finding in audit.audit_graph(graphs.trace("t", step, [VECTOR])).findings
    ]
    assert ("copy", "Prod") not in find(step, VECTOR)


@pytest.mark.parametrize("memory", get_args(Memory))
@pytest.mark.parametrize("precision", ["float32", "mixed_float16", "mixed_bfloat16"])
def test_nothing_is_found_in_the_job(memory: Memory, precision: Precision) -> None:
    training, evaluation = _audit_small(memory=memory, precision=precision)
    assert not training.findings
    assert not evaluation.findings
    assert training.inputs == ("images", "labels")  # XLA's compiled function reads the rate
    assert evaluation.inputs == ("images",)


def test_what_xla_compiles_is_not_looked_into() -> None:
    compiled = tf.function(lambda x: x + tf.cast(tf.argmax(x, -1, tf.int32) == 1, x.dtype)[:, None], jit_compile=True)
    assert not find(lambda x: compiled(x) * 2.0, tf.TensorSpec((64, 10)))


def _audit_small(**options: Any) -> list[audit.Report]:
    config = replace(resolve("digits", growth=4, depth=16, **options), layers=(2, 2))
    return audit.audit_run(config)


def test_the_command_reports_and_fails_where_something_is_found(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def planted(x: tf.Tensor) -> tf.Tensor:
        return tf.raw_ops.NthElement(input=x, n=1)

    traced = graphs.trace("planted", planted, [MAPS])
    monkeypatch.setattr(audit, "audit_run", lambda config: [audit.audit_graph(traced)])
    assert audit.main(["digits", "--threads", "2"]) == 7
    output = capsys.readouterr()
    assert "kernel: NthElement (float32, int32)" in output.out
    assert "findings of kind kernel" in output.err
    assert audit.main(["digits", "--threads", "2", "--json"]) == 7
    (report,) = json.loads(capsys.readouterr().out)
    assert report["findings"][0]["reason"].startswith("the operation has no GPU kernel")


def test_all_means_each_mode_precision_and_preset() -> None:
    configurations = list(audit.list_configurations())
    assert len({config.digest for config in configurations}) == len(configurations) == 36
    assert {config.stem for config in configurations} == {"cifar", "imagenet"}
