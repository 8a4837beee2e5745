"""Reads where TensorFlow has placed the operations of a step that ran."""

from collections.abc import Iterable
from typing import Any, Final

import tensorflow as tf

# Operations that only move values between parts of a graph, or hold values that the host has anyway.
_CARRIERS: Final = frozenset(
    {
        "_Arg", "_DeviceArg", "_Retval", "_DeviceRetval", "_Send", "_Recv", "_HostSend", "_HostRecv", "NoOp", "Const",
        "_HostConst", "Identity", "_EagerConst", "Placeholder",
    }
)  # fmt: skip


def list_host_operations(graphs: Iterable[Any]) -> list[str]:
    placed = (node for graph in graphs for node in graph.node if "/device:CPU" in node.device)
    return sorted({_describe(node) for node in placed if node.op not in _CARRIERS})


def list_crossings(graphs: Iterable[Any]) -> list[str]:
    """List operations on the GPU that read a value of the GPU in host memory, by ``_Send`` and ``_HostRecv`` nodes."""
    crossings = set()
    for graph in graphs:
        sent = {node.attr["tensor_name"].s for node in graph.node if node.op == "_Send"}
        received = {node.name for node in graph.node if node.op == "_HostRecv" and node.attr["tensor_name"].s in sent}
        crossings |= {_describe(node) for node in graph.node if received & set(node.input)}
    return sorted(crossings)


def _describe(node: Any) -> str:
    dtypes = {name: tf.as_dtype(value.type).name for name, value in node.attr.items() if value.type}
    types = ", ".join(f"{name}={dtype}" for name, dtype in sorted(dtypes.items()) if not name.startswith("_"))
    return f"{node.op} at {node.name} for {types}"
