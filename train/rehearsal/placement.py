"""Finds operations that do not run on the GPU in TensorFlow's final graphs, and why, by the kernel registry."""

from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, Final, NamedTuple

import tensorflow as tf

from train.rehearsal import kernels

# These only carry values in and out of a part of a graph, or hold what the host has anyway.
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
    """Yield the graphs of a RunMetadata after placement and optimisation, one for each device."""
    for function in metadata.function_graphs:
        yield from function.partition_graphs


def list_host_operations(graphs: Iterable[Any]) -> list[Placement]:
    found = {}
    for graph in graphs:
        for node in graph.node:
            if "/device:CPU" in node.device and node.op not in _CARRIERS:
                found[node.name] = Placement(node.name, node.op, _dtypes(node), _explain(node))
    return sorted(found.values())


def list_crossings(graphs: Iterable[Any]) -> list[Placement]:
    """List operations on the GPU whose kernels compute in host memory on a value that the GPU has computed.

    TensorFlow puts a pair of nodes with the same ``tensor_name`` into such an edge: ``_Send`` and ``_HostRecv``.
    """
    found = {}
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
                    found[node.name] = Placement(node.name, node.op, dtypes, reason)
    return sorted(found.values())


def _dtypes(node: Any) -> dict[str, str]:
    return {
        name: tf.as_dtype(value.type).name
        for name, value in sorted(node.attr.items())
        if value.type and not name.startswith("_")
    }


@cache
def _read_registry() -> kernels.KernelTable:
    return kernels.read_registry()


def _explain(node: Any) -> str:
    table = _read_registry()
    attributes = {name: kernels.read_values(value) for name, value in node.attr.items()}
    if table.find(node.op, attributes):
        return "it has a GPU kernel, but its device is given as the CPU, or its inputs are bound to the CPU"
    registered = table.kernels.get(node.op, ())
    constrained = {name for kernel in registered for name, _ in kernel.constraints}
    types = ", ".join(f"{name}={value}" for name, value in _dtypes(node).items() if name in constrained)
    return f"{node.op} has no GPU kernel" + (f" for {types}" if types else "")
