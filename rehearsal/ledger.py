import ctypes
import json
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from train.errors import CheckError

Counts = dict[str, dict[str, int]]
"""Counts since the start of the process, by group and name. ``native`` defines the groups."""

DIRECTIONS: Final = ("to device", "to host", "within device", "within host")


def read() -> Counts:
    """Read all counts so far; raises a CheckError if the CUDA driver is not the emulated one."""
    library = ctypes.CDLL("libcuda.so.1")
    if not hasattr(library, "nullgpu_write"):
        raise CheckError(
            "the CUDA driver here is not the emulated one", remedy="start a rehearsal by python -m rehearsal"
        )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "counts.json"
        if library.nullgpu_write(str(path).encode()):
            raise CheckError(f"the counts of the emulated GPU cannot be written to {folder}", remedy="free disk space")
        counts: Counts = json.loads(path.read_text(encoding="utf-8"))
    return counts


def subtract(later: Counts, earlier: Counts) -> Counts:
    difference = {
        group: {name: count - earlier.get(group, {}).get(name, 0) for name, count in names.items()}
        for group, names in later.items()
    }
    return {group: {name: count for name, count in names.items() if count} for group, names in difference.items()}


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
    counts: Counts = recorded["counts"]
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
