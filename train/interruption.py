"""SIGTERM, SIGINT and SIGHUP stop a run with its work saved, or at once where there is none to lose.

Before the first step is done, a signal ends the process at once. After that, it asks the loop to stop after its step
and to save; a second signal ends the process at once. SIGHUP, which a terminal sends when it is closed, is left alone
where it is ignored, as under nohup.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Requests:
    """Remembers a signal to stop, from the moment that there is work to save."""

    def __init__(self) -> None:
        self.reason = ""
        self.waiting = False

    def __call__(self) -> str:
        """Return why to stop, or nothing."""
        return self.reason

    def wait(self) -> None:
        """Wait for the end of a step from now on, because there is work that would be lost."""
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
    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    before = {number: signal.signal(number, requests.receive) for number in numbers}
    try:
        yield requests
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
