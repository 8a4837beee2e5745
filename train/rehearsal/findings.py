"""What is wrong with a rehearsed job: its own error, and what exceeds the limits of ``limits.yaml``."""

from collections.abc import Iterator, Mapping
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from train.config import TrainConfig
from train.rehearsal.request import Request
from train.rehearsal.steps import Step


class Finding(NamedTuple):
    """One thing that is wrong: a word for its kind, and the case in plain words."""

    kind: str
    text: str


Limits = Mapping[str, int]


@cache
def _read_table() -> dict[str, Any]:
    text = (Path(__file__).parent / "limits.yaml").read_text(encoding="utf-8")
    table: dict[str, Any] = yaml.safe_load(text)
    return table


def choose_limits(config: TrainConfig) -> Limits:
    """The limits of a job: those of every job, and those of the first configuration in the table that it fits."""
    table, fields = _read_table(), config.as_dict()
    for entry in table["configurations"]:
        conditions = {name: value for name, value in entry.items() if name in fields}
        if all(fields[name] == value for name, value in conditions.items()):
            return {**table["every"], **{name: value for name, value in entry.items() if name not in conditions}}
    return dict(table["every"])


def judge(request: Request, record: Mapping[str, Any], steps: list[Step], limits: Limits) -> list[Finding]:
    """Everything that is wrong, worst first; an empty list means that the job passes."""
    return [
        *_judge_end(record),
        *_judge_placement(record, limits),
        *_judge_steps(steps, limits),
        *_judge_memory(steps, limits),
        *_judge_devices(request, steps),
        *_judge_audit(record.get("audit") or {}),
    ]


def _judge_end(record: Mapping[str, Any]) -> Iterator[Finding]:
    error = record.get("error")
    if not error:
        return
    if error["kind"] == "NoDevice":
        reasons = "; ".join(record.get("log", [])) or "TensorFlow's log does not say why"
        yield Finding("no device", f"TensorFlow uses no GPU and would train on the CPU: {reasons}")
        return
    where = f"{error['operation'] or 'node'} at {error['node']}: " if error["node"] else ""
    yield Finding("error", f"the job stops: {error['kind']}: {where}{_shorten(error['message'])}")


def _shorten(message: str) -> str:
    """The part of TensorFlow's message that says what is wrong: not the Python frames before it."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    telling = [line for line in lines if not line.startswith(("File ", "Detected at", "Graph execution error", "[["))]
    return " ".join(telling)[:600]


def _judge_placement(record: Mapping[str, Any], limits: Limits) -> Iterator[Finding]:
    for kind, what in (("on_host", "placed on the CPU"), ("crossings", "computed in host memory")):
        found = record.get(kind, [])
        if len(found) > limits.get(kind, len(found)):
            listed = "; ".join(f"{each['operation']} at {each['node']}: {each['reason']}" for each in found[:5])
            more = f"; and {len(found) - 5} more" if len(found) > 5 else ""
            yield Finding(kind.replace("_", " "), f"{len(found)} operations are {what}: {listed}{more}")


def _judge_steps(steps: list[Step], limits: Limits) -> Iterator[Finding]:
    if not steps:
        return
    measured = {
        "launches": max(step.launched for step in steps),
        "to_device": max(step.count_copies("to device") for step in steps),
        "to_host": max(step.count_copies("to host") for step in steps),
        "waits": max(step.waits for step in steps),
    }
    names = {
        "launches": "kernel launches",
        "to_device": "copies to the device",
        "to_host": "copies to the host",
        "waits": "waits for the device",
    }
    for name, count in measured.items():
        if count > limits.get(name, count):
            yield Finding(name.replace("_", " "), f"a step makes {count} {names[name]}; the limit is {limits[name]}")


def _judge_memory(steps: list[Step], limits: Limits) -> Iterator[Finding]:
    rises = [later.in_use - earlier.in_use for earlier, later in pairwise(steps)]
    if rises and min(rises) > limits.get("growth", min(rises)):
        yield Finding("growth", f"the memory in use grows with each step, by {min(rises):,} bytes and more")


def _judge_devices(request: Request, steps: list[Step]) -> Iterator[Finding]:
    if not steps:
        return
    idle = [index for index in range(request.device.count) if not steps[-1].launches.get(f"device {index}")]
    if idle:
        yield Finding(
            "idle device",
            f"{len(idle)} of {request.device.count} GPUs do nothing (number {', '.join(map(str, idle))}), and "
            "TensorFlow holds them for this job: hide them by CUDA_VISIBLE_DEVICES, or train on all",
        )


def _judge_audit(audited: Mapping[str, Any]) -> Iterator[Finding]:
    """What the static audit found, see ``train.rehearsal.inspection``; equal findings of a graph as one."""
    if audited.get("error"):
        yield Finding("audit", f"the static audit could not be made: {audited['error']}")
    groups: dict[tuple[str, ...], list[str]] = {}
    for each in (each for graph in audited.get("graphs", []) for each in graph["findings"]):
        key = (each["graph"], each["kind"], each["operation"], each["dtype"], each["reason"])
        groups.setdefault(key, []).append(each["node"])
    for (graph, kind, operation, dtype, reason), (first, *others) in groups.items():
        more = f" and {len(others)} more" if others else ""
        yield Finding(f"audit: {kind}", f"{graph}: {operation} ({dtype}) at {first}{more}: {reason}")
