"""One line of progress: redrawn on a terminal, printed now and then elsewhere.

Not rich's progress: loading it takes longer than an up-to-date command.
"""

import shutil
import sys
from time import monotonic

from toolkit.console import Console

PLAIN_SECONDS = 15.0
"""Seconds between lines where a line cannot be redrawn, as in CI logs."""


class StatusLine:
    """The latest state of a long step."""

    def __init__(self, console: Console, step: str) -> None:
        self._console = console
        self._step = step
        self._start = self._said = monotonic()

    def show(self, text: str) -> None:
        """Replace the line."""
        now = monotonic()
        width = shutil.get_terminal_size(fallback=(120, 24)).columns - 1
        line = f"{self._step:<8} {now - self._start:5.0f} s  {text}"[:width]
        if self._console.live:
            sys.stderr.write(f"\r\x1b[2K{line}")
            sys.stderr.flush()
        elif now - self._said >= PLAIN_SECONDS:
            self._said = now
            self._console.say(line)

    def clear(self) -> None:
        """Remove the line, before something else is printed."""
        if self._console.live:
            sys.stderr.write("\r\x1b[2K")
            sys.stderr.flush()
