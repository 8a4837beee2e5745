"""Bounds how long another machine may take: for the head of an answer, and for its body by the bytes of a second.

The toolkit uses it too, so it imports the standard library alone.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextvars import copy_context
from typing import Final, TypeVar

SLOWEST: Final = 10_000
"""Bytes a second that a body must have, measured over each span of patience."""

_Result = TypeVar("_Result")


def within(seconds: float, call: Callable[[], _Result]) -> _Result:
    """Return the result of a call. Raises TimeoutError if it takes longer, and passes on what the call raises.

    The time limit of a socket is for one read, so a peer that sends one byte at a time never exceeds it. The call runs
    in a thread of its own, which is left alone when the time is over.
    """
    results: list[_Result] = []
    errors: list[BaseException] = []
    context = copy_context()

    def run() -> None:
        try:
            results.append(context.run(call))
        except BaseException as error:  # noqa: BLE001 - it is raised by the thread that waits
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if errors:
        raise errors[0]
    if not results:
        raise TimeoutError(f"there was no answer within {seconds:g} s")
    return results[0]


def list_pieces(read: Callable[[], bytes], patience: float) -> Iterator[bytes]:
    """Yield the pieces of a body. Raises TimeoutError if fewer than SLOWEST bytes a second come.

    `read` returns what is there, and nothing at the end.
    """
    began, count = time.monotonic(), 0
    while piece := read():
        yield piece
        count += len(piece)
        if (elapsed := time.monotonic() - began) > patience:
            if count < SLOWEST * elapsed:
                raise TimeoutError(f"only {count:,} bytes came in {elapsed:.0f} s")
            began, count = time.monotonic(), 0
