"""What a person sees: results on standard output, everything else on standard error.

The split lets ``--json`` be piped while a build still talks (the convention of cargo, uv and docker buildx).
"""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic

_BOLD, _DIM, _RED, _RESET = "\x1b[1m", "\x1b[2m", "\x1b[31m", "\x1b[0m"


@dataclass(frozen=True)
class Console:
    """How much to say and in which form.

    Attributes:
        json: the result goes to standard output as one JSON object.
        verbosity: -1 quiet (errors only), 0 normal, 1 with details.
    """

    json: bool = False
    verbosity: int = 0

    def say(self, text: str) -> None:
        """One line of progress."""
        if self.verbosity >= 0:
            print(text, file=sys.stderr, flush=True)

    def detail(self, text: str) -> None:
        """One line that only ``--verbose`` shows."""
        if self.verbosity >= 1:
            print(_paint(text, _DIM), file=sys.stderr, flush=True)

    def heading(self, step: str, text: str) -> None:
        """The name of a step of the chain and what became of it."""
        self.say(f"{_paint(f'{step:<8}', _BOLD)} {text}")

    def fail(self, text: str) -> None:
        """An error: always shown."""
        print(f"{_paint('error:', _RED)} {text}", file=sys.stderr, flush=True)

    def result(self, value: object, text: str) -> None:
        """The outcome of a command, as JSON or as text."""
        print(json.dumps(value, indent=2, sort_keys=True) if self.json else text, flush=True)

    @contextmanager
    def timed(self, step: str, text: str) -> Iterator[None]:
        """Announce a step, and say how long it took when it ends well."""
        self.heading(step, f"{text} …")
        start = monotonic()
        yield
        self.heading(step, f"done in {monotonic() - start:.1f} s")

    @property
    def live(self) -> bool:
        """Whether a line on standard error may be drawn over."""
        return self.verbosity >= 0 and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


def _paint(text: str, code: str) -> str:
    # https://no-color.org: any non-empty value turns color off.
    return f"{code}{text}{_RESET}" if sys.stderr.isatty() and not os.environ.get("NO_COLOR") else text
