"""SIGTERM and SIGINT end the process at once where nothing would be lost, and else ask the loop to stop after its step.

A second signal always ends the process at once.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Requests:
    """Remembers that somebody asked to stop, from the moment that there is something to save."""

    def __init__(self) -> None:
        self.reason = ""
        self.waiting = False

    def __call__(self) -> str:
        """Why to stop, or nothing."""
        return self.reason

    def wait(self) -> None:
        """From now on there is work that would be lost."""
        self.waiting = True

    def receive(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal."""
        del frame
        if self.reason or not self.waiting:
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
