"""Where a Bazel build stands, read from the lines it prints.

The Build Event Protocol carries no running total of actions (bazelbuild/bazel, build_event_stream.proto has
ActionSummary in BuildMetrics only, at the end), so the total comes from the progress lines and the verdict from the
events: see :mod:`toolkit.wheel.events`.
"""

import re
from dataclasses import dataclass
from time import monotonic

_COUNT = re.compile(r"\[([0-9][0-9,]{0,11}) / ([0-9][0-9,]{0,11})\]\s*(.*)")
_NOISE = re.compile(r"\s*(?:\.\.\. \(\d+ actions.*|;\s*\d+s\s+\S+.*)$")


@dataclass
class Progress:
    """The state of a build, fed line by line.

    Bazel finds actions while it builds, so the total grows; the estimate counts from the first line on which it is
    known and is worth little before a twentieth is done.

    Attributes:
        done, total: actions, as of the latest line that had them.
        action: what that line said is being done.
    """

    done: int = 0
    total: int = 0
    action: str = ""
    _first: tuple[float, int] | None = None
    _latest: float = 0.0

    def hear(self, line: str, *, now: float | None = None) -> bool:
        """Take in a line; returns whether it told anything new."""
        match = _COUNT.search(line)
        if match is None:
            return False
        now = monotonic() if now is None else now
        self.done, self.total = (int(match[index].replace(",", "")) for index in (1, 2))
        self.action = _NOISE.sub("", match[3]).strip()
        self._first = self._first or (now, self.done)
        self._latest = now
        return True

    @property
    def remaining(self) -> float | None:
        """Seconds that the rest will take at the speed so far; None before there is one."""
        if self._first is None:
            return None
        since, start = self._first
        finished = self.done - start
        if finished <= 0 or self.done * 20 < self.total:
            return None
        return (self._latest - since) / finished * max(0, self.total - self.done)

    @property
    def summary(self) -> str:
        """One line for a person; empty before Bazel has counted anything."""
        if not self.total:
            return ""
        parts = [f"[{self.done:,}/{self.total:,}] {100 * self.done // self.total} %"]
        if self.remaining is not None:
            parts.append(f"about {describe_duration(self.remaining)} left")
        return "  ".join([*parts, self.action])

    @property
    def event(self) -> dict[str, object]:
        """The same for a machine."""
        left = None if self.remaining is None else round(self.remaining, 1)
        return {
            "event": "progress",
            "done": self.done,
            "total": self.total,
            "action": self.action,
            "seconds_left": left,
        }


def describe_duration(seconds: float) -> str:
    """``45 s``, ``12 min`` or ``3 h 05 min``."""
    minutes = round(seconds / 60)
    if minutes < 2:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02} min"
