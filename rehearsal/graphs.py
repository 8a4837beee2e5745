"""Traces steps, optimized by Grappler as for a described GPU, and finds what does not run on the GPU."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final, NamedTuple

import numpy as np
import tensorflow as tf

from rehearsal.kernels import CUDA, CUDNN, KernelTable, read_registry, read_values
from train.config.configuration import TrainConfig
from train.model import formulation
from train.step import evaluation, training

BATCH: Final = 8
"""Batch size if the configuration leaves it open."""

GPU: Final = "/job:localhost/replica:0/task:0/device:GPU:0"


@dataclass(frozen=True)
class TracedGraph:
    """A traced function: its graph with the functions that it calls, and the references of its outputs."""

    name: str
    graph: Any
    outputs: tuple[str, ...]
    controls: tuple[str, ...]  # names of nodes that run in addition to the outputs
    arguments: frozenset[str]  # placeholders that the caller fills in each run
    variables: dict[str, str]  # dtype of each variable by the placeholder of its handle


def trace_run(config: TrainConfig) -> tuple[TracedGraph, ...]:
    current, rule = training.start(config, formulation.FOR_GPU)
    unit = np.ones(config.shape[-1])
    batch = config.batch_size or BATCH
    images = tf.TensorSpec((batch, *config.shape), tf.uint8)
    step = training.make_train_step(current, rule, config, unit, unit, form=formulation.FOR_GPU)
    labels, rate = tf.TensorSpec((batch,), tf.int32), tf.TensorSpec((), tf.float32)
    watched = tf.TensorSpec((evaluation.EVALUATION_BATCH, *config.shape), tf.uint8)
    return (
        optimize(trace("training", step, [images, labels, rate])),
        optimize(trace("evaluation", evaluation.make_evaluation_step(current.model, unit, unit), [watched])),
    )


def trace(name: str, function: Any, arguments: Sequence[tf.TensorSpec]) -> TracedGraph:
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


# Operations that only move values between parts of a graph, or hold values that the host has anyway.
_CARRIERS: Final = frozenset(
    {
        "_Arg", "_DeviceArg", "_Retval", "_DeviceRetval", "_Send", "_Recv", "_HostSend", "_HostRecv", "NoOp", "Const",
        "_HostConst", "Identity", "_EagerConst", "Placeholder",
    }
)  # fmt: skip


class Placement(NamedTuple):
    node: str
    operation: str
    dtypes: dict[str, str]
    reason: str


def read_graphs(metadata: Any) -> Iterator[Any]:
    for function in metadata.function_graphs:
        yield from function.partition_graphs


def list_host_operations(graphs: Iterable[Any]) -> list[Placement]:
    placements = {}
    for graph in graphs:
        for node in graph.node:
            if "/device:CPU" in node.device and node.op not in _CARRIERS:
                placements[node.name] = Placement(node.name, node.op, _dtypes(node), _explain(node))
    return sorted(placements.values())


def list_crossings(graphs: Iterable[Any]) -> list[Placement]:
    """List operations on the GPU that read a value of the GPU in host memory, by ``_Send`` and ``_HostRecv`` nodes."""
    placements = {}
    for graph in graphs:
        makers = {node.attr["tensor_name"].s: node.input[0] for node in graph.node if node.op == "_Send"}
        received = {
            node.name: makers[node.attr["tensor_name"].s]
            for node in graph.node
            if node.op == "_HostRecv" and node.attr["tensor_name"].s in makers
        }
        for node in graph.node:
            for source in node.input:
                if source in received:
                    dtypes = _dtypes(node)
                    types = "".join(f" for {name}={value}" for name, value in dtypes.items())
                    reason = f"its kernel{types} takes {received[source]} in host memory, and the GPU has made it"
                    placements[node.name] = Placement(node.name, node.op, dtypes, reason)
    return sorted(placements.values())


def _dtypes(node: Any) -> dict[str, str]:
    return {
        name: tf.as_dtype(value.type).name
        for name, value in sorted(node.attr.items())
        if value.type and not name.startswith("_")
    }


@cache
def _read_registry() -> KernelTable:
    return read_registry()


def _explain(node: Any) -> str:
    table = _read_registry()
    attributes = {name: read_values(value) for name, value in node.attr.items()}
    if table.find(node.op, attributes):
        return "it has a GPU kernel, but its device is given as the CPU, or its inputs are bound to the CPU"
    registered = table.kernels.get(node.op, ())
    constrained = {name for kernel in registered for name, _ in kernel.constraints}
    types = ", ".join(f"{name}={value}" for name, value in _dtypes(node).items() if name in constrained)
    return f"{node.op} has no GPU kernel" + (f" for {types}" if types else "")
