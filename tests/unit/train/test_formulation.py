from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.makers.formulation import FOR_GPU_CHANNELS_LAST, configure, make_step, make_unit, walk
from tests.tiers import slow, weekly
from tests.unit.train.blocks import make_input, make_layers, measure_difference, run
from train.config.configuration import TrainConfig
from train.model.block import Mode
from train.model.densenet import build
from train.model.formulation import FOR_CPU, FOR_GPU, Formulation
from train.step import evaluation, training

TOLERANCE = {"float64": 1e-10, "float32": 1e-4}


@pytest.mark.parametrize("dtype", ["float64", weekly("float32")])
@pytest.mark.parametrize("mode", [slow("plain"), slow("recompute"), "shared"])
def test_a_block_with_channels_first_computes_the_same(mode: Mode, dtype: str) -> None:
    x, layers = make_input(dtype), make_layers(count=2, dtype=dtype)
    expected = run(x, layers, "plain", rate=0.2)

    @tf.function(jit_compile=True, autograph=False)
    def compute(x: tf.Tensor) -> dict[str, Any]:
        return run(x, layers, mode, FOR_GPU, rate=0.2, compiled=True)

    assert measure_difference(compute(x), expected) < TOLERANCE[dtype]


def take_step(config: TrainConfig, form: Formulation) -> dict[str, Any]:
    current, function = make_step(config, form)
    images, unit = np.random.default_rng(0).integers(0, 256, (8, *config.shape)).astype(np.uint8), make_unit(config)
    compiled = training.compile_train_step(function, config)
    compiled(tf.constant(images), tf.constant(np.arange(8, dtype=np.int32)), tf.constant(0.05))
    evaluate = evaluation.make_evaluation_step(current.model, unit, unit / 2)
    evaluate = evaluation.compile_evaluation_step(evaluate, config)
    return {**current.read(), "logits": evaluate(tf.constant(images)).numpy()}


NETWORKS: dict[str, dict[str, Any]] = {
    "digits, channels first": {"dataset": "digits", "depth": 16, "memory": "plain", "jit": True},
    "digits": {"dataset": "digits", "depth": 16},
    "ImageNet": {"dataset": "cifar10", "model": "121", "dropout": 0.0},
}


@pytest.mark.parametrize("case", [slow("digits, channels first"), slow("digits"), slow("ImageNet")])
def test_a_network_for_gpus_takes_the_same_step(case: str) -> None:
    config = configure(precision="float64", **NETWORKS[case])
    if config.jit:  # compiling takes most of the time
        config = replace(config, layers=(1, 1))
    expected = take_step(replace(config, jit=False), FOR_CPU)  # XLA must drop the same values
    found = take_step(config, FOR_GPU if config.jit else FOR_GPU_CHANNELS_LAST)
    assert expected.keys() == found.keys()
    for name, value in expected.items():
        assert np.abs(found[name] - value).max() <= 1e-9 * np.abs(value).max(), name


def trace(config: TrainConfig, form: Formulation) -> list[tf.Operation]:
    function = training.compile_train_step(make_step(config, form)[1], config)
    arguments = (tf.zeros((8, *config.shape), tf.uint8), tf.zeros(8, tf.int32), tf.constant(0.05))
    return list(walk(function.get_concrete_function(*arguments).graph))  # type: ignore[attr-defined]


@pytest.mark.parametrize("precision", ["float32", slow("mixed_float16")])
@pytest.mark.parametrize("memory", [slow("plain"), slow("recompute"), "shared"])
def test_a_step_for_gpus_can_be_deterministic(memory: Mode, precision: str) -> None:
    """Its norms are differentiated in training mode only: see the message in fused_batch_norm_op.cu.cc."""
    operations = trace(configure("digits", depth=16, memory=memory, precision=precision), FOR_GPU)
    norms = [op for op in operations if op.type.startswith("FusedBatchNormGrad")]
    assert norms
    assert all(op.get_attr("is_training") for op in norms)
    laid = [op for op in operations if "data_format" in op.node_def.attr and not op.type.startswith("Bias")]
    assert [op.name for op in laid if op.get_attr("data_format") != b"NCHW"] == []


def test_kernels_are_cast_to_half_precision_once() -> None:
    """Casting a kernel at each use would cost three more launches for each convolution on a GPU."""
    config = configure("digits", depth=16, memory="recompute", precision="mixed_float16")
    kernels = [variable.shape for variable in build(config, FOR_GPU).trainable_variables if len(variable.shape) == 4]
    casts = [op for op in trace(config, FOR_GPU) if op.type == "Cast" and op.get_attr("DstT") == tf.float16]
    found = [op for op in casts if op.outputs[0].shape.as_list() in [list(shape) for shape in kernels]]
    assert len(found) == len(kernels)
