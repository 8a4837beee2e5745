import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

from rehearsal.request import Request
from train.config.configuration import TrainConfig
from train.config.presets import read_table

DIRECTIONS: Final = ("to device", "to host", "within device", "within host")


@dataclass(frozen=True, kw_only=True)
class Step:
    """The counts of one step."""

    launches: dict[str, int]  # of kernels by device; a CUDA graph is one launch
    graph_kernels: int  # kernels in these graphs
    library: dict[str, int]  # calls; each is at least one more kernel
    copies: dict[str, dict[int, int]]  # by direction and size in bytes
    waits: int
    in_use: int  # in_use, peak: bytes
    peak: int

    @property
    def launched(self) -> int:
        return sum(self.launches.values())

    @property
    def called(self) -> int:
        return sum(self.library.values())

    def count_copies(self, direction: str) -> int:
        return sum(self.copies[direction].values())

    def count_bytes(self, direction: str) -> int:
        return sum(size * count for size, count in self.copies[direction].items())


def read_step(recorded: dict[str, Any]) -> Step:
    counts: dict[str, dict[str, int]] = recorded["counts"]
    copies: dict[str, dict[int, int]] = {direction: {} for direction in DIRECTIONS}
    for name, count in counts.get("copy", {}).items():
        direction, _, size = name.rpartition(" ")
        copies[direction][int(size)] = count
    launches = Counter(counts.get("launch", {})) + Counter(counts.get("graph launch", {}))
    return Step(
        launches=dict(launches),
        graph_kernels=sum(counts.get("graph kernel", {}).values()),
        library=counts.get("library", {}),
        copies=copies,
        waits=sum(counts.get("wait", {}).values()),
        in_use=recorded["memory"]["current"],
        peak=recorded["memory"]["peak"],
    )


class Finding(NamedTuple):
    kind: str
    text: str


Limits = Mapping[str, int]


def choose_limits(config: TrainConfig) -> Limits:
    """Return the limits of every job, updated by those of the first configuration in the table that fits this job."""
    table, fields = read_table("limits", Path(__file__).parent), config.as_dict()
    for entry in table["configurations"]:
        conditions = {name: value for name, value in entry.items() if name in fields}
        if all(fields[name] == value for name, value in conditions.items()):
            return {**table["every"], **{name: value for name, value in entry.items() if name not in conditions}}
    return dict(table["every"])


def find_faults(request: Request, record: Mapping[str, Any], steps: list[Step], limits: Limits) -> list[Finding]:
    """List all findings, worst first. The job passes if there are none."""
    return [
        *_check_binaries(request, record),
        *_check_machine_code(request, record),
        *_check_end(record),
        *_check_placement(record, limits),
        *_check_steps(steps, limits),
        *_check_memory(steps, limits),
        *_check_devices(request, steps),
        *_check_audit(record.get("audit") or {}),
    ]


def _check_binaries(request: Request, record: Mapping[str, Any]) -> Iterator[Finding]:
    """Report a device that TensorFlow has no code for. It is checked first, because its other errors vary by chance."""
    binaries = record.get("counts", {}).get("fat binary", {})
    if set(binaries) == {"none"}:
        capability = ".".join(map(str, request.device.capability))
        yield Finding(
            "no device code",
            f"none of the {binaries['none']} fat binaries has code for capability {capability}: "
            "no kernel image is available for execution on the device",
        )


CONTAINER: Final = "fat binary: "
"""Prefix of the modules that come with TensorFlow; those that XLA makes at run time have none."""


def _check_machine_code(request: Request, record: Mapping[str, Any]) -> Iterator[Finding]:
    """Report kernels of TensorFlow's own that the driver has to compile, if none may be left to it."""
    if not request.machine_code:
        return
    counts = record.get("counts", {})
    binaries = counts.get("fat binary", {})
    loaded = {
        name.removeprefix(CONTAINER): count
        for name, count in counts.get("module", {}).items()
        if name.startswith(CONTAINER)
    }
    for counted, what in ((binaries, "fat binaries"), (loaded, "modules of elementwise kernels")):
        left = {name: count for name, count in counted.items() if name.startswith("PTX")}
        if left:
            listed = ", ".join(f"{count} {name}" for name, count in sorted(left.items()))
            yield Finding("PTX", f"{sum(left.values())} {what} have no machine code for the device: {listed}")
    if not loaded:
        yield Finding("PTX", "no elementwise kernel was loaded, so nothing is known of their machine code")


def _check_end(record: Mapping[str, Any]) -> Iterator[Finding]:
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
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    kept = [line for line in lines if not line.startswith(("File ", "Detected at", "Graph execution error", "[["))]
    return " ".join(kept)[:600]


def _check_placement(record: Mapping[str, Any], limits: Limits) -> Iterator[Finding]:
    for kind, what in (("on_host", "placed on the CPU"), ("crossings", "computed in host memory")):
        placed = record.get(kind, [])
        if len(placed) > limits.get(kind, len(placed)):
            listed = "; ".join(f"{each['operation']} at {each['node']}: {each['reason']}" for each in placed[:5])
            more = f"; and {len(placed) - 5} more" if len(placed) > 5 else ""
            yield Finding(kind.replace("_", " "), f"{len(placed)} operations are {what}: {listed}{more}")


def _check_steps(steps: list[Step], limits: Limits) -> Iterator[Finding]:
    if not steps:
        return
    counted = {
        "launches": (max(step.launched for step in steps), "kernel launches"),
        "to_device": (max(step.count_copies("to device") for step in steps), "copies to the device"),
        "to_host": (max(step.count_copies("to host") for step in steps), "copies to the host"),
        "waits": (max(step.waits for step in steps), "waits for the device"),
    }
    for name, (count, what) in counted.items():
        if count > limits.get(name, count):
            yield Finding(name.replace("_", " "), f"a step makes {count} {what}; the limit is {limits[name]}")


def _check_memory(steps: list[Step], limits: Limits) -> Iterator[Finding]:
    rises = [later.in_use - earlier.in_use for earlier, later in pairwise(steps)]
    if rises and min(rises) > limits.get("growth", min(rises)):
        yield Finding("growth", f"the memory in use grows with each step, by {min(rises):,} bytes and more")


def _check_devices(request: Request, steps: list[Step]) -> Iterator[Finding]:
    if not steps:
        return
    idle = [index for index in range(request.device.count) if not steps[-1].launches.get(f"device {index}")]
    if idle:
        yield Finding(
            "idle device",
            f"{len(idle)} of {request.device.count} GPUs do nothing (number {', '.join(map(str, idle))}), and "
            "TensorFlow holds them for this job: hide them by CUDA_VISIBLE_DEVICES, or train on all",
        )


def _check_audit(audited: Mapping[str, Any]) -> Iterator[Finding]:
    if audited.get("error"):
        yield Finding("audit", f"the static audit could not be made: {audited['error']}")
    groups: dict[tuple[str, ...], list[str]] = {}
    for each in (each for graph in audited.get("graphs", []) for each in graph["findings"]):
        key = (each["graph"], each["kind"], each["operation"], each["dtype"], each["reason"])
        groups.setdefault(key, []).append(each["node"])
    for (graph, kind, operation, dtype, reason), (first, *others) in groups.items():
        more = f" and {len(others)} more" if others else ""
        yield Finding(f"audit: {kind}", f"{graph}: {operation} ({dtype}) at {first}{more}: {reason}")


NOTE = "emulated, not run on a GPU: nothing was computed, and no time was measured"


@dataclass(frozen=True, kw_only=True)
class Report:
    request: Request
    record: Mapping[str, Any]
    steps: list[Step]
    limits: Limits
    findings: list[Finding]

    def as_dict(self) -> dict[str, Any]:
        record, device = self.record, self.request.device
        return {
            "emulated": True,
            "note": NOTE,
            "device": dataclasses.asdict(device),
            "tensorflow": record.get("tensorflow"),
            "config": self.request.config.as_dict(),
            "passed": not self.findings,
            "findings": [finding._asdict() for finding in self.findings],
            "error": record.get("error"),
            "limits": dict(self.limits),
            "steps": [_describe_step(step) for step in self.steps],
            "on_host": record.get("on_host", []),
            "crossings": record.get("crossings", []),
            "fat_binaries": record.get("counts", {}).get("fat binary", {}),
            "modules": record.get("counts", {}).get("module", {}),
            "elementwise": record.get("elementwise"),
            "refused": record.get("counts", {}).get("refused", {}),
            "not_emulated": record.get("counts", {}).get("not emulated", {}),
            "allocator_peak_bytes": max((step.peak for step in self.steps), default=None),
            "job_peak_bytes": record.get("job_peak_bytes"),
            "audit": record.get("audit"),
            "batches": record.get("batches"),
            "log": record.get("log", []),
        }

    def as_text(self) -> str:
        return "\n".join(self._list_lines())

    def _list_lines(self) -> Iterator[str]:
        config, device = self.request.config, self.request.device
        memory = f"{device.memory / 2**30:.1f} GiB"
        yield f"{device.name}, capability {device.capability[0]}.{device.capability[1]}, {memory}: {NOTE}"
        modes = f"memory {config.memory}, {config.precision}{', XLA' if config.jit else ''}"
        yield f"{config.dataset}, {config.model}, batch {config.batch_size}, {modes}"
        yield from self._list_binaries()
        yield from _list_steps(self.steps)
        yield from self._list_memory()
        for kind, title in (("on_host", "on the CPU"), ("crossings", "in host memory")):
            for each in self.record.get(kind, []):
                yield f"{title}: {each['operation']} at {each['node']}: {each['reason']}"
        counts = self.record.get("counts", {})
        for kind, title in (("refused", "refused"), ("not emulated", "not emulated, and refused")):
            for name, count in counts.get(kind, {}).items():
                yield f"{title}: {name} ({count} times)"
        audited = self.record.get("audit") or {}
        if audited.get("graphs"):
            nodes = sum(graph["nodes"] for graph in audited["graphs"])
            yield f"static audit: {len(audited['graphs'])} graphs with {nodes:,} nodes"
        yield from (f"TensorFlow: {line}" for line in self.record.get("log", []))
        for finding in self.findings:
            yield f"FINDING {finding.kind}: {finding.text}"
        yield "passed" if not self.findings else f"failed: {len(self.findings)} findings"

    def _list_binaries(self) -> Iterator[str]:
        binaries = self.record.get("counts", {}).get("fat binary", {})
        for name, count in sorted(binaries.items()):
            if name == "none":
                yield f"{count} fat binaries have no code for this device"
            elif name.startswith("PTX for"):
                yield f"{count} fat binaries have only {name}, which the driver refuses"
            elif name.startswith("PTX"):
                yield f"{count} fat binaries have only {name}, which the driver must compile at the first start"
            else:
                yield f"{count} fat binaries have a {name}"
        for name, count in sorted(self.record.get("counts", {}).get("module", {}).items()):
            yield f"{count} modules were loaded while it ran: {name}"
        if "elementwise" in self.record:
            yield f"{self.record['elementwise']} elementwise operations were run, each in each dtype that it has"

    def _list_memory(self) -> Iterator[str]:
        if self.steps:
            peak = max(step.peak for step in self.steps) / 2**20
            yield f"allocator peak {peak:,.0f} MiB, a lower bound: the libraries' workspaces are not in it"
        batches = self.record.get("batches")
        if batches:
            limit = f"{batches['limit'] / 2**20:,.0f} MiB that TensorFlow's allocator has"
            yield f"largest batch {batches['largest']}, an upper bound: it fits the {limit}, without workspaces"


def make(request: Request, record: Mapping[str, Any]) -> Report:
    counted = [read_step(each) for each in record.get("steps", [])]
    limits = choose_limits(request.config)
    return Report(
        request=request,
        record=record,
        steps=counted,
        limits=limits,
        findings=find_faults(request, record, counted, limits),
    )


def _describe_step(step: Step) -> dict[str, Any]:
    copies = {
        direction: {str(size): count for size, count in sorted(sizes.items())}
        for direction, sizes in step.copies.items()
        if direction != DIRECTIONS[-1]
    }
    return dataclasses.asdict(step) | {"copies": copies, "launched": step.launched, "library_calls": step.called}


def _list_steps(counted: list[Step]) -> Iterator[str]:
    if not counted:
        return
    header = ("step", "launches", "library", "to device", "to host", "within", "waits", "peak MiB")
    rows = [
        (
            str(number),
            f"{step.launched:,}" + (f" ({step.graph_kernels:,} in graphs)" if step.graph_kernels else ""),
            f"{step.called:,}",
            *(f"{step.count_copies(name)} ({_size(step.count_bytes(name))})" for name in DIRECTIONS[:3]),
            str(step.waits),
            f"{step.peak / 2**20:,.1f}",
        )
        for number, step in enumerate(counted, start=1)
    ]
    widths = [max(len(row[column]) for row in [header, *rows]) for column in range(len(header))]
    for row in [header, *rows]:
        yield "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))


def _size(count: int) -> str:
    return f"{count:,} B" if count < 10_000 else f"{count / 1024:,.0f} KiB"
