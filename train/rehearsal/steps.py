"""What one step cost: the counts of the emulated GPU in the terms of a report."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

from train.rehearsal.ledger import DIRECTIONS, Counts


@dataclass(frozen=True, kw_only=True)
class Step:
    """Counts of one step.

    Attributes:
        launches: kernel launches by device, those of a CUDA graph together as one.
        graph_kernels: kernels that CUDA graphs launched.
        library: calls of cuBLAS, cuDNN and so on, by function; each is at least one kernel more.
        copies: number of copies by direction and size in bytes.
        fills: number of fills of device memory.
        waits: how often the host waited for the device.
        in_use: bytes of TensorFlow's allocator in use at the end.
        peak: most bytes in use during the step.
    """

    launches: dict[str, int]
    graph_kernels: int
    library: dict[str, int]
    copies: dict[str, dict[int, int]]
    fills: int
    waits: int
    in_use: int
    peak: int

    @property
    def launched(self) -> int:
        """Launches on all devices."""
        return sum(self.launches.values())

    @property
    def called(self) -> int:
        """Calls of libraries."""
        return sum(self.library.values())

    def count_copies(self, direction: str) -> int:
        """Number of copies in one direction."""
        return sum(self.copies[direction].values())

    def count_bytes(self, direction: str) -> int:
        """Bytes copied in one direction."""
        return sum(size * count for size, count in self.copies[direction].items())


def read(recorded: dict[str, Any]) -> Step:
    """Read a step of a record."""
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
        fills=sum(counts.get("fill", {}).values()),
        waits=sum(counts.get("wait", {}).values()),
        in_use=recorded["memory"]["current"],
        peak=recorded["memory"]["peak"],
    )
