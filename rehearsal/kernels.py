"""Reads which GPU kernels TensorFlow's CUDA wheel registers, for each operation and for which dtypes.

A kernel is looked up by operation, device and label; the first one wins whose constraints on dtypes hold, with kernels
of the device before those of DEFAULT (FindKernelRegistration in tensorflow/core/framework/op_kernel.cc).
``python -m rehearsal.kernels``, run by a Python with the CUDA wheel, prints ``kernels.yaml``.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

from train.errors import PreflightError
from train.system import output
from train.system.program import explain_errors

FILE: Final = Path(__file__).with_name("kernels.yaml")
DEVICES: Final = ("GPU", "DEFAULT")
CUDA, CUDNN = (12, 5), (9, 3)
"""Versions that the table's TensorFlow is built for, from its ``build_info`` and ``cudnn_version.h``."""

HEADER: Final = """\
# The GPU kernels that the CUDA build of this TensorFlow registers, by operation. Each row: device, then for attributes
# the set of dtypes (or values) that is allowed, by its name in the list of sets, then arguments in host memory.
# Made by: python -m rehearsal.kernels > rehearsal/kernels.yaml (with the CUDA build; needs no GPU)
"""

Attributes = Mapping[str, tuple[str, ...]]
"""Attributes of a node by name: names of dtypes, or strings and numbers as text."""


@dataclass(frozen=True, kw_only=True, order=True)
class Kernel:
    """A registered kernel, or several that differ only in their dtypes."""

    device: str  # GPU, or DEFAULT for any device
    constraints: tuple[tuple[str, tuple[str, ...]], ...]
    host: tuple[str, ...] = ()  # names of the arguments in host memory
    label: str = ""  # the value that a node's attribute ``_kernel`` must have, mostly empty
    priority: int = 0

    def fits(self, attributes: Attributes, label: str) -> bool:
        return label == self.label and all(
            set(attributes.get(name, ())) <= set(allowed) for name, allowed in self.constraints
        )


@dataclass(frozen=True)
class KernelTable:
    version: str
    kernels: Mapping[str, Sequence[Kernel]]

    def find(self, operation: str, attributes: Attributes, label: str = "") -> Kernel | None:
        for device in DEVICES:
            fitting = [
                kernel
                for kernel in self.kernels.get(operation, ())
                if kernel.device == device and kernel.fits(attributes, label)
            ]
            if fitting:
                return max(fitting, key=lambda kernel: kernel.priority)
        return None


@cache
def read_table() -> KernelTable:
    data = yaml.load(FILE.read_text(encoding="utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506
    return decode(data)


def read_registry() -> KernelTable:
    """Read the kernels of the loaded TensorFlow; raises a PreflightError for a build without CUDA."""
    import tensorflow as tf
    from tensorflow.python.framework import kernels

    if not tf.test.is_built_with_cuda():
        raise PreflightError(
            "this TensorFlow has no GPU kernels",
            why="it was built without CUDA",
            remedy="use the Python of an environment with the CUDA build of tensorflow",
        )
    found: dict[str, list[Kernel]] = defaultdict(list)
    for registered in kernels.get_all_registered_kernels().kernel:
        if registered.device_type in DEVICES:
            constraints = (
                (each.name, tuple(sorted(read_values(each.allowed_values)))) for each in registered.constraint
            )
            kernel = Kernel(
                device=registered.device_type,
                constraints=tuple(sorted(constraints)),
                host=tuple(sorted(registered.host_memory_arg)),
                label=registered.label,
                priority=registered.priority,
            )
            found[registered.op].append(kernel)
    return KernelTable(tf.version.VERSION, {name: merge(found[name]) for name in sorted(found)})


def read_values(value: Any) -> tuple[str, ...]:
    from tensorflow.python.framework import dtypes

    kind = value.WhichOneof("value")
    if kind == "list":
        kind = next((each for each in _KINDS if getattr(value.list, each)), "")
        found: Sequence[Any] = getattr(value.list, kind) if kind else []
    else:
        found = [getattr(value, kind)] if kind in _KINDS else []
    if kind == "type":
        return tuple(dtypes.as_dtype(number).name for number in found)
    return tuple(each.decode(errors="replace") if isinstance(each, bytes) else str(each) for each in found)


_KINDS: Final = ("type", "s", "i", "b")
"""Fields of an ``AttrValue`` that are read: dtypes, strings, integers, booleans."""


def merge(kernels: Iterable[Kernel]) -> list[Kernel]:
    merged = sorted(set(kernels))
    for index in range(max((len(kernel.constraints) for kernel in merged), default=0)):
        groups: dict[Any, list[Kernel]] = defaultdict(list)
        for kernel in merged:
            others = kernel.constraints[:index] + kernel.constraints[index + 1 :]
            names = tuple(name for name, _ in kernel.constraints)
            groups[kernel.device, names, others, kernel.host, kernel.label, kernel.priority].append(kernel)
        merged = [_join(group, index) for group in groups.values()]
    return sorted(merged)


def _join(group: Sequence[Kernel], index: int) -> Kernel:
    first = group[0]
    if len(first.constraints) <= index:
        return first
    name = first.constraints[index][0]
    values = tuple(sorted({value for kernel in group for value in kernel.constraints[index][1]}))
    constraints = (*first.constraints[:index], (name, values), *first.constraints[index + 1 :])
    return replace(first, constraints=constraints)


def encode(table: KernelTable) -> dict[str, Any]:
    """Turn the table into plain values. Sets of dtypes get names, because the same few sets occur many times."""
    sets: dict[tuple[str, ...], str] = {}
    rows: dict[str, list[str]] = {}
    for operation, kernels in table.kernels.items():
        rows[operation] = []
        for kernel in kernels:
            words = [kernel.device]
            words += [f"{name}={sets.setdefault(values, f's{len(sets)}')}" for name, values in kernel.constraints]
            words += [f"host:{','.join(kernel.host)}"] if kernel.host else []
            words += [f"label:{kernel.label}"] if kernel.label else []
            words += [f"priority:{kernel.priority}"] if kernel.priority else []
            rows[operation].append(" ".join(words))
    return {"tensorflow": table.version, "sets": {name: list(values) for values, name in sets.items()}, "kernels": rows}


def decode(data: Mapping[str, Any]) -> KernelTable:
    sets = {name: tuple(values) for name, values in data["sets"].items()}

    def read(row: str) -> Kernel:
        device, *words = row.split(" ")
        facts = dict(word.split(":", 1) for word in words if ":" in word)
        pairs = (word.split("=", 1) for word in words if "=" in word)
        return Kernel(
            device=device,
            constraints=tuple((name, sets[values]) for name, values in pairs),
            host=tuple(facts["host"].split(",")) if "host" in facts else (),
            label=facts.get("label", ""),
            priority=int(facts.get("priority", 0)),
        )

    return KernelTable(
        data["tensorflow"], {name: [read(row) for row in rows] for name, rows in data["kernels"].items()}
    )


@explain_errors
def main() -> int:
    table = read_registry()
    text = yaml.safe_dump(encode(table), sort_keys=False, width=120, default_flow_style=None)
    output.show((HEADER + text).removesuffix("\n"))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
