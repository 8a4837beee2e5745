"""Checks the job's graphs against the GPU kernels of TensorFlow's CUDA build, without a GPU and without running a step.

``python -m rehearsal.audit [training arguments]`` checks one configuration, ``--all`` all. It reports nodes with

- ``kernel``: no GPU kernel runs the operation, so TensorFlow runs it on the host;
- ``dtype``: there are GPU kernels for the operation, but none for these dtypes;
- ``determinism``: with deterministic operations, which the job requests, its GPU kernel fails or computes on the host;
- ``copy``: it reads a tensor that is in the other memory, so each step copies between host and device.

Functions compiled by XLA are not checked, because XLA generates their kernels.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

import yaml

from rehearsal import transfers
from rehearsal.kernels import KernelTable, read_table
from rehearsal.request import Request
from rehearsal.transfers import CALLS, ON_HOST, Body, Node, read_graph
from train.config.configuration import Memory, Precision, TrainConfig
from train.config.resolution import resolve
from train.errors import CheckError, UsageError
from train.system import output
from train.system.program import explain_errors

if TYPE_CHECKING:
    from rehearsal.graphs import TracedGraph

Kind = Literal["kernel", "dtype", "determinism", "copy"]
RULES: Final = Path(__file__).with_name("rules.yaml")
FREE: Final = frozenset({"Placeholder"})
"""Operations that exist only in traced graphs. TensorFlow turns them into arguments."""

PRESETS: Final = (("digits", "bc-22-12"), ("fashion_mnist", "40-12"), ("cifar100", "bc-100-12"), ("cifar10", "121"))
"""Data sets and models of ``--all``: small and large, without bottleneck, and with the stem for ImageNet."""


@dataclass(frozen=True, kw_only=True, order=True)
class Problem:
    """A node that a GPU would not run as it should. The module's docstring explains each `kind`."""

    graph: str
    kind: Kind
    operation: str
    node: str
    dtype: str
    reason: str


@dataclass(frozen=True)
class Report:
    """The result for one graph. `inputs` are the arguments that each run copies to the device."""

    graph: str
    nodes: int
    findings: tuple[Problem, ...]
    inputs: tuple[str, ...]


def audit_run(config: TrainConfig) -> list[Report]:
    from rehearsal.graphs import trace_run

    job = f"{config.model} {config.memory} {config.precision}"
    return [audit_graph(replace(graph, name=f"{job} {graph.name}")) for graph in trace_run(config)]


def audit_graph(traced: "TracedGraph", table: KernelTable | None = None) -> Report:
    table = table or read_table()
    auditor = _Auditor(traced, table)
    return Report(traced.name, auditor.count, tuple(auditor.findings), tuple(sorted(auditor.inputs)))


class _Auditor:
    def __init__(self, traced: "TracedGraph", table: KernelTable) -> None:
        self.name, self.table = traced.name, table
        self.library = {function.signature.name: function for function in traced.graph.library.function}
        self.findings: list[Problem] = []
        self.inputs: set[str] = set()
        self.count = 0
        nodes = read_graph(traced.graph)
        homeless = set()
        for placeholder, dtype in traced.variables.items():
            if not table.find("VarHandleOp", {"dtype": (dtype,)}):
                homeless.add(placeholder)
                reason = f"a variable of {dtype} has no GPU kernel: it is kept on the host, and its readers run there"
                self._report("dtype", nodes[placeholder], reason, operation="VarHandleOp", dtype=dtype)
        memories: dict[str, transfers.Memory] = {
            name: "argument" if name in traced.arguments else _locate_by_dtype(node)
            for name, node in nodes.items()
            if node.operation == "Placeholder"
        }
        self._walk(Body(nodes, traced.outputs, traced.controls, memories, frozenset(homeless), table=table))

    def _walk(self, body: Body) -> None:
        needed = [node for node in body.list_needed() if node.operation not in FREE]
        self.count += len(needed)
        for node in needed:
            self._check_kernel(body, node)
            self._check_rules(node)
            for function in node.functions:
                self._enter(body, node, function)
        for copy in body.list_copies(needed):
            if copy.source == "argument":
                self.inputs.add(copy.tensor.split(":")[0])
                continue
            where = "in device memory" if copy.target == "device" else "in host memory"
            self._report(
                "copy",
                copy.reader,
                f"reads {copy.tensor} as {copy.argument!r} {where}, and it is in the other: one copy a step to the "
                f"{copy.target}" + (", for which the host waits" if copy.target == "host" else ""),
                dtype=copy.dtype,
            )

    def _enter(self, body: Body, node: Node, function: str) -> None:
        from tensorflow.python.framework.function_def_to_graph import function_def_to_graph_def

        if function not in self.library:
            return
        definition = self.library[function]
        if definition.attr["_XlaMustCompile"].b:  # XLA generates kernels of its own
            return
        graph, flat = function_def_to_graph_def(definition)
        given = [each for each in node.inputs if not each.startswith("^")][CALLS.get(node.operation, 0) :]
        names = [argument.name for argument in definition.signature.input_arg]
        pairs = dict(zip(names, given, strict=True))
        self._walk(
            Body(
                read_graph(graph, f"{node.name}/"),
                [flat[definition.ret[argument.name]] for argument in definition.signature.output_arg],
                list(definition.control_ret.values()),
                {name: body.locate(reference) for name, reference in pairs.items()},
                frozenset(name for name, reference in pairs.items() if body.is_homeless(reference)),
                table=self.table,
            )
        )

    def _check_kernel(self, body: Body, node: Node) -> None:
        if body.find_kernel(node):
            return
        if node.operation in self.table.kernels:
            self._report("dtype", node, "no GPU kernel takes these dtypes: TensorFlow runs it on the host")
        elif node.operation not in self.library:
            self._report("kernel", node, "the operation has no GPU kernel: TensorFlow runs it on the host")

    def _check_rules(self, node: Node) -> None:
        for rule in _read_rules():
            if node.operation in rule["operations"] and _holds(rule, node):
                source = f"(tensorflow/core/{rule['file']}:{rule['line']})"
                reason = _REASONS[rule["effect"]].format(message=rule.get("message", ""))
                self._report("copy" if rule["effect"] == "table" else "determinism", node, f"{reason} {source}")

    def _report(self, kind: Kind, node: Node, reason: str, *, operation: str = "", dtype: str = "") -> None:
        self.findings.append(
            Problem(
                graph=self.name,
                kind=kind,
                operation=operation or node.operation,
                node=node.name,
                dtype=dtype or ", ".join(dict.fromkeys([*node.dtypes, *(kind for _, kind in node.results)])),
                reason=reason,
            )
        )


@cache
def _read_rules() -> list[dict[str, Any]]:
    rules: list[dict[str, Any]] = yaml.safe_load(RULES.read_text(encoding="utf-8"))
    return rules


_REASONS: Final = {
    "refuses": "refuses deterministic operations: {message}",
    "host": "with deterministic operations its GPU kernel copies to the host, computes there and copies back",
    "table": "has so many parts that its GPU kernel copies a table of pointers to the device in each step",
}


def _holds(rule: Mapping[str, Any], node: Node) -> bool:
    listed = max(Counter(node.arguments).values(), default=0)
    return (
        all(set(node.attributes.get(name, ())) <= set(values) for name, values in rule.get("when", {}).items())
        and listed >= rule.get("inputs", 0)
        and len(node.results) >= rule.get("outputs", 0)
    )


def _locate_by_dtype(node: Node) -> transfers.Memory:
    return "host" if node.results[0][1] in ON_HOST else "device"


def list_configurations() -> Iterator[TrainConfig]:
    for dataset, model in PRESETS:
        for memory in get_args(Memory):
            for precision in get_args(Precision):
                if precision != "float64":  # for proofs on the CPU
                    yield resolve(dataset, model=model, memory=memory, precision=precision)


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m rehearsal.audit",
        usage="%(prog)s [--json] (DATASET [options of python -m train] | --all)",
        description="Check the graphs of a training job against the GPU kernels of TensorFlow's CUDA build: operations "
        "and dtypes without a GPU kernel, kernels that refuse deterministic operations, and copies between host and "
        "device. Nothing is run; neither a GPU nor the CUDA build is needed.",
        epilog="Exit code 7: something was found. Options of the training job: python -m train --help",
        allow_abbrev=False,
    )
    parser.add_argument("--all", action="store_true", help="check every memory mode, precision and preset; minutes")
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")
    return parser


@explain_errors
def main(argv: Sequence[str] | None = None) -> int:
    from train import cli
    from train.step import runtime

    own, passed_on = make_parser().parse_known_args(argv)
    if own.all and passed_on:
        raise UsageError(f"--all takes no other arguments but --json: {' '.join(passed_on)}")
    configurations = list(list_configurations()) if own.all else [cli.parse(passed_on)]
    runtime.prepare(runtime.choose_threads(configurations[0], None))
    reports: list[Report] = []
    for config in configurations:
        found = audit_run(config)
        reports += found
        if not own.json:  # print each at once, because all of them take minutes
            output.show("\n".join(line for report in found for line in describe(report)))
    if own.json:
        output.show_json([asdict(report) for report in reports])
    _require_none(reports)
    return 0


def describe(report: Report) -> Iterator[str]:
    count = len(report.findings)
    yield f"{report.graph}: {report.nodes} nodes, {count} findings; copied in: {', '.join(report.inputs) or 'nothing'}"
    groups: dict[tuple[str, ...], list[Problem]] = {}
    for finding in report.findings:
        groups.setdefault((finding.kind, finding.operation, finding.dtype), []).append(finding)
    for (kind, operation, dtype), (first, *others) in groups.items():
        more = f" and {len(others)} more" if others else ""
        yield f"  {kind}: {operation} ({dtype}) {first.node}{more}: {first.reason}"


def _require_none(reports: Sequence[Report]) -> None:
    counts = Counter(finding.kind for report in reports for finding in report.findings)
    if counts:
        raise CheckError(
            "a GPU would not run this job as it should",
            why=", ".join(f"{count} findings of kind {kind}" for kind, count in counts.items()),
        )


PROGRAM: Final = ("-P", "-c", "from rehearsal.audit import answer; raise SystemExit(answer())")


@contextmanager
def running(request: Request, *, program: Sequence[str] = PROGRAM) -> Iterator[Callable[[], dict[str, Any]]]:
    """Audit in a process that ends with the block; yield a function that returns its ``graphs`` or its ``error``."""
    path = os.pathsep.join(filter(None, [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH")]))
    with tempfile.TemporaryFile("w+", encoding="utf-8") as source:
        source.write(request.write())
        source.seek(0)
        process = subprocess.Popen(
            [sys.executable, *program],
            stdin=source,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "CUDA_VISIBLE_DEVICES": "-1", "PYTHONPATH": path},
            start_new_session=True,  # Ctrl-C reaches only the parent, which ends the audit
        )

    def finish() -> dict[str, Any]:
        output, errors = process.communicate()
        if process.returncode:
            lines = errors.strip().splitlines()
            return {"error": lines[-1] if lines else f"exit code {process.returncode}"}
        return {"graphs": json.loads(output)}

    try:
        yield finish
    finally:
        process.kill()
        process.communicate()


def answer() -> int:
    from train.step import runtime

    config = Request.read(sys.stdin.read()).config
    runtime.prepare(runtime.choose_threads(config, None), tf32=config.tf32)
    reports = [] if config.jit else audit_run(config)
    output.show_json([asdict(report) for report in reports])
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
