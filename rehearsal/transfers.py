"""Finds out in which memory the tensors of a graph are on a machine with a GPU, without running anything.

A node runs on the GPU if there is a GPU kernel for it and its dtypes, else on the host. If a tensor is written in one
memory and read in the other, TensorFlow inserts a copy (NeedSameDeviceSendRecv in
tensorflow/core/graph/graph_partition.cc). A copy to the host also makes the host wait for the device.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

from rehearsal.kernels import Attributes, Kernel, KernelTable, read_values

Memory = Literal["host", "device", "argument"]
"""The memory of a tensor. An argument comes from the host, and is copied once if a kernel on the device reads it."""

ON_HOST: Final = frozenset({"int32", "resource", "string"})
"""Dtypes that a function takes and returns in host memory (MTypeFromDType in tensorflow/core/framework)."""

CALLS: Final = {"If": 1, "StatelessIf": 1, "Case": 1, "StatelessCase": 1}
"""Operations that do not pass their first inputs to the functions that they call, and the number of these inputs."""


class Copy(NamedTuple):
    tensor: str
    dtype: str
    source: Memory
    target: Memory
    reader: "Node"
    argument: str


@dataclass(frozen=True)
class Node:
    """A node of a graph, or of a function in it."""

    name: str
    operation: str
    attributes: Attributes
    inputs: tuple[str, ...]  # references to the tensors that it reads
    arguments: tuple[str, ...]  # their names
    dtypes: tuple[str, ...]
    results: tuple[tuple[str, str], ...]  # argument name and dtype of each output
    functions: tuple[str, ...]  # names of the functions that it calls
    label: str = ""  # chooses among its kernels


@dataclass
class Body:
    """A graph, or a function called from one."""

    nodes: Mapping[str, Node]
    outputs: Sequence[str]
    controls: Sequence[str]  # names of nodes that must run in addition to the outputs
    memories: Mapping[str, Memory]
    # arguments that are handles of variables without a GPU kernel; their readers run on the host
    homeless: frozenset[str] = frozenset()
    table: KernelTable = field(kw_only=True)

    def list_needed(self) -> list[Node]:
        """List the nodes that the outputs depend on; TensorFlow prunes the others."""
        found: dict[str, Node] = {}
        left = [*(_producer(reference) for reference in self.outputs), *self.controls]
        while left:
            name = left.pop()
            if name not in found and name in self.nodes:
                found[name] = self.nodes[name]
                left += [_producer(reference) for reference in self.nodes[name].inputs]
        return list(found.values())

    def find_kernel(self, node: Node) -> Kernel | None:
        return self.table.find(node.operation, node.attributes, node.label)

    def is_on_host(self, node: Node) -> bool:
        return self.find_kernel(node) is None or any(self.is_homeless(reference) for reference in node.inputs)

    def is_homeless(self, reference: str) -> bool:
        name = _producer(reference)
        node = self.nodes.get(name)
        if name in self.homeless or node is None:
            return name in self.homeless
        index = _output(reference)
        return index < len(node.results) and node.results[index][1] == "resource" and self.is_on_host(node)

    def locate(self, reference: str) -> Memory:
        name = _producer(reference)
        if name in self.memories:
            return self.memories[name]
        node = self.nodes[name]
        kernel = self.find_kernel(node)
        index = _output(reference)
        argument, dtype = node.results[index]
        if kernel is None or self.is_on_host(node) or argument in kernel.host:
            return "host"
        if node.functions:
            return "host" if dtype in ON_HOST else "device"
        return "device"

    def list_copies(self, nodes: Sequence[Node]) -> Iterator[Copy]:
        seen = set()
        for node in nodes:
            kernel = self.find_kernel(node)
            elsewhere = self.is_on_host(node)
            for index, reference in enumerate(node.inputs):
                if reference.startswith("^") or (node.functions and index >= CALLS.get(node.operation, 0)):
                    continue  # inputs of a function are checked inside of it
                argument, dtype = node.arguments[index], node.dtypes[index]
                target: Memory = "host" if elsewhere or kernel is None or argument in kernel.host else "device"
                source = self.locate(reference)
                if source == "argument" and target == "host":
                    continue
                if source != target and dtype != "resource" and (reference, target) not in seen:
                    seen.add((reference, target))
                    yield Copy(reference, dtype, source, target, node, argument)


def read_graph(graph: Any, prefix: str = "") -> dict[str, Node]:
    nodes: dict[str, Node] = {}
    for each in graph.node:
        arguments, results = _list_arguments(each)
        values = {name: value for name, value in each.attr.items() if not name.startswith("_")}
        called = [value.func.name for value in values.values() if value.HasField("func")]
        called += [function.name for value in values.values() for function in value.list.func]
        data = [name for name in each.input if not name.startswith("^")]
        nodes[each.name] = Node(
            name=prefix + each.name,
            operation=each.op,
            attributes={name: read_values(value) for name, value in values.items()},
            inputs=(*data, *(name for name in each.input if name.startswith("^"))),
            arguments=tuple(name for name, _ in arguments),
            dtypes=tuple(dtype for _, dtype in arguments),
            results=tuple(results),
            functions=tuple(called),
            label=each.attr["_kernel"].s.decode() if "_kernel" in each.attr else "",
        )
    return nodes


def _list_arguments(node: Any) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    from tensorflow.python.framework import op_def_registry

    definition = op_def_registry.get(node.op)
    if definition is None:
        return [], []
    return (
        [pair for argument in definition.input_arg for pair in _expand(argument, node)],
        [pair for argument in definition.output_arg for pair in _expand(argument, node)],
    )


def _expand(argument: Any, node: Any) -> list[tuple[str, str]]:
    from tensorflow.python.framework import dtypes

    if argument.type_list_attr:
        return [(argument.name, dtypes.as_dtype(kind).name) for kind in node.attr[argument.type_list_attr].list.type]
    kind = argument.type or node.attr[argument.type_attr].type
    count = node.attr[argument.number_attr].i if argument.number_attr else 1
    return [(argument.name, dtypes.as_dtype(kind).name)] * count


def _producer(reference: str) -> str:
    return reference.lstrip("^").split(":")[0]


def _output(reference: str) -> int:
    return int(reference.split(":")[1]) if ":" in reference else 0
