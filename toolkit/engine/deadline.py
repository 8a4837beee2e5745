"""A limit on how long a job may take.

The SDK's waits and streams have none of their own (docker/docker-py#2651), and a pipe has none either.
"""

import threading
from collections.abc import Callable
from typing import Self

from toolkit.errors import CheckError


class Deadline:
    """Stops something when the time is up, and remembers that it did.

    Args:
        seconds: the time; 0 for no limit.
        stop: what ends the job; called at most once, from another thread.
    """

    def __init__(self, seconds: float, stop: Callable[[], object]) -> None:
        self._seconds = seconds
        self._stop = stop
        self._expired = threading.Event()
        self._timer = threading.Timer(seconds, self._expire)
        self._timer.daemon = True

    def __enter__(self) -> Self:
        if self._seconds:
            self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()

    def check(self, title: str) -> None:
        """Raises:
        CheckError: the time was up before the job ended.
        """
        if self._expired.is_set():
            raise CheckError(
                f"{title} did not end within {self._seconds:.0f} s and was stopped",
                remedy="a machine under heavy load may only need another try; else look at its last lines",
            )

    def _expire(self) -> None:
        self._expired.set()
        self._stop()
