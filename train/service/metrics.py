"""Counts what the server does, in the text format of Prometheus.

The format is described at https://prometheus.io/docs/instrumenting/exposition_formats. This module is shorter than the
code that would set up a client library, and it needs no package.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final

from train.system import memory

SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
SIZES: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256)
KIND: Final = "text/plain; version=0.0.4; charset=utf-8"


class Histogram:
    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def add(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def render(self, name: str) -> Iterator[str]:
        bounds = [*(f"{bound:g}" for bound in self._bounds), "+Inf"]
        for bound, count in zip(bounds, accumulate(self._counts), strict=True):
            yield f'{name}_bucket{{le="{bound}"}} {count}'
        yield f"{name}_sum {self._sum:.9g}"
        yield f"{name}_count {sum(self._counts)}"


@dataclass
class Metrics:
    waiting: int = 0  # images
    _requests: Counter[tuple[str, int]] = field(default_factory=Counter)
    _seconds: Histogram = field(default_factory=lambda: Histogram(SECONDS))
    _batches: Histogram = field(default_factory=lambda: Histogram(SIZES))

    def note_request(self, path: str, status: int, seconds: float) -> None:
        """Count a request. `path` is one of the server's own, so that no client can make up new ones."""
        self._requests[path, status] += 1
        if path == "/predictions":
            self._seconds.add(seconds)

    def note_batch(self, images: int) -> None:
        self._batches.add(images)

    def render(self) -> str:
        return "\n".join(self._list_lines()) + "\n"

    def _list_lines(self) -> Iterator[str]:
        yield from _describe("toolkit_requests_total", "counter", "Requests by path and status.")
        for (path, status), count in sorted(self._requests.items()):
            yield f'toolkit_requests_total{{path="{path}",status="{status}"}} {count}'
        yield from _describe("toolkit_request_seconds", "histogram", "Time of a request for predictions.")
        yield from self._seconds.render("toolkit_request_seconds")
        yield from _describe("toolkit_batch_images", "histogram", "Images of a computed batch.")
        yield from self._batches.render("toolkit_batch_images")
        yield from _describe("toolkit_images_waiting", "gauge", "Images that wait for a batch.")
        yield f"toolkit_images_waiting {self.waiting}"
        yield from _describe("process_resident_memory_bytes", "gauge", "Memory of the server.")
        yield f"process_resident_memory_bytes {memory.read_resident()}"


def _describe(name: str, kind: str, text: str) -> Iterator[str]:
    yield f"# HELP {name} {text}"
    yield f"# TYPE {name} {kind}"
