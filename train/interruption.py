"""SIGTERM and SIGINT ask the loop to stop after its step; a second one ends the process at once."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Requests:
    """Remembers that somebody asked to stop."""

    def __init__(self) -> None:
        self.reason = ""

    def __call__(self) -> str:
        """Why to stop, or nothing."""
        return self.reason

    def receive(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal."""
        del frame
        if self.reason:
            raise KeyboardInterrupt
        self.reason = signal.Signals(number).name


@contextmanager
def listening() -> Iterator[Requests]:
    """Listen for signals while the block runs."""
    requests = Requests()
    before = {number: signal.signal(number, requests.receive) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield requests
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
