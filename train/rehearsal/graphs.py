"""Traces one step of training and one of evaluation as TensorFlow would run them, without running anything.

TensorFlow's graph optimizer (Grappler) works on each graph, because only what it leaves is run. With the CUDA build it
is told of a GPU, so that it also chooses the layout of maps for one.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import tensorflow as tf

from train import step
from train.config import TrainConfig
from train.model import formulation
from train.rehearsal.kernels import CUDA, CUDNN

BATCH: Final = 8
"""Examples where the configuration leaves their number open."""

GPU: Final = "/job:localhost/replica:0/task:0/device:GPU:0"


@dataclass(frozen=True)
class TracedGraph:
    """A traced function with the references and names of its outputs, and the functions that it calls.

    Attributes:
        controls: names of the nodes that run besides.
        arguments: placeholders that the caller fills in each run.
        variables: placeholders of variables' handles, and the dtype of each variable.
    """

    name: str
    graph: Any
    outputs: tuple[str, ...]
    controls: tuple[str, ...]
    arguments: frozenset[str]
    variables: dict[str, str]


def trace_run(config: TrainConfig) -> tuple[TracedGraph, ...]:
    """Trace the steps of training and of evaluation of a run, whatever its loop."""
    current, rule = step.start(config, formulation.FOR_GPU)
    unit = np.ones(config.shape[-1])
    batch = config.batch_size or BATCH
    images = tf.TensorSpec((batch, *config.shape), tf.uint8)
    training = step.make_train_step(current, rule, config, unit, unit, form=formulation.FOR_GPU)
    labels, rate = tf.TensorSpec((batch,), tf.int32), tf.TensorSpec((), tf.float32)
    watched = tf.TensorSpec((step.EVALUATION_BATCH, *config.shape), tf.uint8)
    return (
        optimize(trace("training", training, [images, labels, rate])),
        optimize(trace("evaluation", step.make_evaluation_step(current.model, unit, unit), [watched])),
    )


def trace(name: str, function: Any, arguments: Sequence[tf.TensorSpec]) -> TracedGraph:
    """Trace a Python function of tensors with these shapes and dtypes."""
    traced = tf.function(function, autograph=False).get_concrete_function(*arguments)
    captured = {inner.name.split(":")[0]: inner for _, inner in traced.graph.captures}
    given = [tensor.name.split(":")[0] for tensor in traced.graph.inputs]
    return TracedGraph(
        name=name,
        graph=traced.graph.as_graph_def(),
        outputs=tuple(tensor.name for tensor in traced.graph.outputs),
        controls=tuple(operation.name for operation in traced.graph.control_outputs),
        arguments=frozenset(placeholder for placeholder in given if placeholder not in captured),
        variables={
            placeholder: _name_dtype(handle) for placeholder, handle in captured.items() if handle.dtype == tf.resource
        },
    )


def _name_dtype(handle: Any) -> str:
    from tensorflow.python.ops.handle_data_util import get_resource_handle_data

    data = get_resource_handle_data(handle)
    return str(tf.dtypes.as_dtype(data.shape_and_type[0].dtype).name) if data.shape_and_type else ""


def optimize(traced: TracedGraph) -> TracedGraph:
    """Return the graph as Grappler leaves it."""
    from tensorflow.core.protobuf import config_pb2, meta_graph_pb2, rewriter_config_pb2
    from tensorflow.python.grappler import tf_optimizer

    whole = meta_graph_pb2.MetaGraphDef()
    whole.graph_def.CopyFrom(traced.graph)
    kept = [output.split(":")[0] for output in traced.outputs] + list(traced.controls)
    whole.collection_def["train_op"].node_list.value.extend(kept)
    settings = config_pb2.ConfigProto()
    options = settings.graph_options.rewrite_options
    options.min_graph_nodes = -1  # small graphs too
    if tf.test.is_built_with_cuda():
        for node in whole.graph_def.node:
            node.device = GPU
    else:
        options.remapping = rewriter_config_pb2.RewriterConfig.OFF  # without a GPU it makes operations for the CPU
    cluster = _make_cluster()
    try:
        return replace(traced, graph=tf_optimizer.OptimizeGraph(settings, whole, cluster=cluster))
    finally:
        cluster.Shutdown()


def _make_cluster() -> Any:
    """Describe a machine with a T4 to Grappler, whose layout depends on the compute capability."""
    from tensorflow.core.protobuf import device_properties_pb2
    from tensorflow.python.grappler import cluster

    card = device_properties_pb2.DeviceProperties(
        type="GPU", vendor="NVIDIA", model="Tesla T4", frequency=1590, num_cores=40, memory_size=15 * 2**30
    )
    card.environment.update({"architecture": "7.5", "cuda": f"{1000 * CUDA[0] + 10 * CUDA[1]}"})
    card.environment["cudnn"] = f"{10000 * CUDNN[0] + 100 * CUDNN[1]}"
    host = device_properties_pb2.DeviceProperties(type="CPU", frequency=2000, num_cores=2, memory_size=8 * 2**30)
    devices = [
        device_properties_pb2.NamedDevice(name=GPU, properties=card),
        device_properties_pb2.NamedDevice(name=GPU.replace("GPU", "CPU"), properties=host),
    ]
    return cluster.Cluster(devices=devices)
