"""The report of a rehearsal, for people and as JSON."""

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from train.rehearsal import findings, steps
from train.rehearsal.findings import Finding, Limits
from train.rehearsal.ledger import DIRECTIONS
from train.rehearsal.request import Request
from train.rehearsal.steps import Step

NOTE = "emulated, not run on a GPU: nothing was computed, and no time was measured"


@dataclass(frozen=True, kw_only=True)
class Report:
    """A rehearsal that has run to its end, whatever it found."""

    request: Request
    record: Mapping[str, Any]
    steps: list[Step]
    limits: Limits
    findings: list[Finding]

    def as_dict(self) -> dict[str, Any]:
        """All of it as plain values."""
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
            "refused": record.get("counts", {}).get("refused", {}),
            "not_emulated": record.get("counts", {}).get("not emulated", {}),
            "allocator_peak_bytes": max((step.peak for step in self.steps), default=None),
            "job_peak_bytes": record.get("job_peak_bytes"),
            "audit": record.get("audit"),
            "batches": record.get("batches"),
            "log": record.get("log", []),
        }

    def as_text(self) -> str:
        """The report for a terminal."""
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
        found = self.record.get("counts", {}).get("fat binary", {})
        for name, count in sorted(found.items()):
            if name == "none":
                yield f"{count} fat binaries have no code for this device"
            elif name.startswith("PTX"):
                yield f"{count} fat binaries have only {name}, which the driver must compile at the first start"
            else:
                yield f"{count} fat binaries have a {name}"

    def _list_memory(self) -> Iterator[str]:
        if self.steps:
            peak = max(step.peak for step in self.steps) / 2**20
            yield f"allocator peak {peak:,.0f} MiB, a lower bound: the libraries' workspaces are not in it"
        batches = self.record.get("batches")
        if batches:
            limit = f"{batches['limit'] / 2**20:,.0f} MiB that TensorFlow's allocator has"
            yield f"largest batch {batches['largest']}, an upper bound: it fits the {limit}, without workspaces"


def make(request: Request, record: Mapping[str, Any]) -> Report:
    """Judge the record of a rehearsal by the limits of its configuration."""
    measured = [steps.read(each) for each in record.get("steps", [])]
    limits = findings.choose_limits(request.config)
    return Report(
        request=request,
        record=record,
        steps=measured,
        limits=limits,
        findings=findings.judge(request, record, measured, limits),
    )


def _describe_step(step: Step) -> dict[str, Any]:
    copies = {
        direction: {str(size): count for size, count in sorted(sizes.items())}
        for direction, sizes in step.copies.items()
        if direction != DIRECTIONS[-1]
    }
    return dataclasses.asdict(step) | {"copies": copies, "launched": step.launched, "library_calls": step.called}


def _list_steps(measured: list[Step]) -> Iterator[str]:
    if not measured:
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
        for number, step in enumerate(measured, start=1)
    ]
    widths = [max(len(row[column]) for row in [header, *rows]) for column in range(len(header))]
    for row in [header, *rows]:
        yield "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))


def _size(count: int) -> str:
    return f"{count:,} B" if count < 10_000 else f"{count / 1024:,.0f} KiB"
