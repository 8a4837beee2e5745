"""Shows the progress of long work: it estimates the time left, and draws or prints one line.

The toolkit uses it too, so it imports the standard library alone. A process has one line at a time. On a terminal it is
drawn over itself; elsewhere it is printed when nothing else was for a minute.
"""

import io
import os
import re
import shutil
import sys
import textwrap
import threading
import time
import unicodedata
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, NamedTuple, Self, TextIO

Mode = Literal["auto", "plain", "tty", "quiet"]
"""How progress is shown, in BuildKit's words: by the kind of the stream, as lines, redrawn, or not at all."""

LINE_SECONDS = 60.0
"""Longest time without a line where none can be redrawn, as in logs."""

TICK_SECONDS: Final = 1.0
REDRAW_SECONDS: Final = 0.1
WIDTH: Final = 120
MANY: Final = 1000  # uneven units, of which cheap ones were seen to come first
LONG: Final = 600.0  # seconds left from which on the time of the end is said too
ROOMY: Final = 40  # columns, with fewer of which words that can be missed are left out
SHORTEST_TEXT: Final = 10
ERASE: Final = "\r\x1b[K"


class Work(NamedTuple):
    """What is being done, and how much of it is done."""

    text: str = ""
    done: float = 0
    total: float = 0  # 0: unknown
    unit: str = ""  # an estimate is of one unit; ``bytes`` are written as such
    uneven: bool = False  # whether some units cost nothing, and come in bursts
    unknown: bool = False  # whether units say nothing about time, so that there is no estimate


class Estimate:
    """Estimates the time left by the reports so far. It is never negative, and counts down between two reports.

    Where units are uneven, the cost of one is the mean over the seconds, not over the units, but at most twice the mean
    over units. Otherwise a burst of units that cost nothing would be taken for the speed of the rest.
    """

    START = 0.05  # share of the work before the first estimate
    MERGED = 1.0  # seconds within which reports count as one
    MOST = 2.0

    def __init__(self) -> None:
        self._first: tuple[float, float] | None = None
        self._mark = (0.0, 0.0)
        self._now = self._seconds = self._costs = 0.0
        self._work = Work()

    def feed(self, work: Work, now: float) -> None:
        if self._first is None or work.unit != self._work.unit or work.done < self._work.done:
            self._first = self._mark = (now, work.done)
            self._seconds = self._costs = 0.0
        elif work.done == self._work.done and work.total == self._work.total:
            return
        self._work, self._now = work, max(now, self._now)
        since, before = self._mark
        if (units := work.done - before) > 0 and (spent := self._now - since) >= self.MERGED:
            self._seconds += spent
            self._costs += spent * spent / units
            self._mark = (self._now, work.done)

    @property
    def cost(self) -> float | None:
        """The seconds that a unit takes; None if no unit was seen to be done."""
        since, before = self._first or (0.0, 0.0)
        finished, spent = self._work.done - before, self._now - since
        if self._first is None or finished <= 0 or spent <= 0:
            return None
        mean = spent / finished
        if self._work.uneven and self._seconds:
            return min(self._costs / self._seconds, self.MOST * mean)
        return mean

    def left(self, now: float) -> float | None:
        """Return the seconds left; None if it is too early to say."""
        cost, work = self.cost, self._work
        begun = self._first[1] if self._first else 0.0
        if cost is None or work.unknown or work.done - begun < self.START * (work.total - begun):
            return None
        # What is counted down is at most one unit, so that work that hangs is not nearly done.
        return max(0.0, cost * (work.total - work.done) - min(max(0.0, now - self._now), cost))


def render(step: str, work: Work, elapsed: float, left: float | None, width: int = WIDTH) -> str:
    """Return the line in `width` columns. Without room, these are left out in turn: end, text, count, time, step."""
    percent = f"{100 * work.done / work.total:.0f} %" if work.total else ""
    count = f"[{_count(work)}]" if work.total else ""
    # Of many uneven units cheap ones come first, so that what is said before half of the time is too short.
    short = left is not None and left > elapsed and work.uneven and work.total >= MANY
    over = "over " if short and width >= ROOMY else ""
    spent, rest = format_seconds(elapsed), "" if left is None else f"{over}{format_seconds(left)} left"
    name = f"{step:<8}" if step else ""

    def join(*, step: bool = True, count_: bool = True, time_: bool = True) -> str:
        done = " ".join(filter(None, [count if count_ else "", percent]))
        times = ", ".join(filter(None, [spent if time_ else "", rest]))
        body = "  ".join(filter(None, [done, times]))
        return f"{name} {body}" if step and name else body

    full, text = join(), printable(work.text)
    if left is not None and left >= LONG and not over:
        until = f"{full}, until {time.strftime('%H:%M', time.localtime(time.time() + left))}"
        full = until if len(until) + bool(text) * (2 + measure(text)) <= width else full
    room = width - len(full) - 2
    if text and (room >= SHORTEST_TEXT or room >= measure(text)):
        return f"{full}  {cut(text, room)}"
    for line in (full, join(count_=False), join(count_=False, time_=False), join(step=False, count_=False)):
        if len(line) <= width:
            return line
    return cut(join(step=False, count_=False, time_=not rest and not percent), width)


def _count(work: Work) -> str:
    if work.unit != "bytes":
        return f"{work.done:,.0f}/{work.total:,.0f}"
    scale, name = next(
        unit for unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1, "B")) if work.total >= unit[0] or unit[0] == 1
    )
    digits = 0 if scale == 1 or work.total / scale >= 100 else 1
    return f"{work.done / scale:.{digits}f}/{work.total / scale:.{digits}f} {name}"


def printable(text: str) -> str:
    """Return text as one line: without control characters, which could move the cursor."""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in _SEQUENCE.sub("", text)).split())


_SEQUENCE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")


def _columns(letter: str) -> int:
    if unicodedata.combining(letter) or unicodedata.category(letter) == "Cf":
        return 0
    return 2 if unicodedata.east_asian_width(letter) in "WF" else 1


def measure(text: str) -> int:
    """Return the columns that text takes in a terminal."""
    return len(text) if text.isascii() else sum(map(_columns, text))


def cut(text: str, width: int) -> str:
    """Return text in no more columns than `width`; where some is left out, it ends with an ellipsis.

    It is cut between two words, unless that would leave out most of it, as in a long path.
    """
    if measure(text) <= width:
        return text
    kept, used = "", 1
    for letter in text:
        used += _columns(letter)
        if used > width:
            break
        kept += letter
    whole = kept if text[len(kept) :].startswith(" ") else kept.rpartition(" ")[0]
    if 2 * measure(whole) > width:
        kept = whole.rstrip(" ,")
    return f"{kept.rstrip()}…" if width > 0 else ""


def format_seconds(seconds: float) -> str:
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m {whole % 60:02d}s"
    return f"{whole // 3600}h {whole % 3600 // 60:02d}m"


def is_live(mode: Mode, stream: TextIO) -> bool:
    """Return whether a line is redrawn on a stream."""
    return mode == "tty" or (mode == "auto" and stream.isatty() and os.environ.get("TERM") != "dumb")


class Status:
    """The line of progress of a block. It is removed when the block ends, however it ends."""

    def __init__(
        self,
        step: str,
        mode: Mode = "auto",
        *,
        stream: TextIO | None = None,
        change: Callable[[str], str] = str,
    ) -> None:
        self.step, self.mode, self.stream = step, mode, stream or sys.stderr
        self.live = is_live(mode, self.stream)
        self.estimate = Estimate()
        self._change = change  # of each text before it is written
        self._work = Work()
        self._lock = threading.RLock()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._began = self._spoken = time.monotonic()
        self._drawn = -REDRAW_SECONDS
        self._shown = False  # whether a line stands on the terminal
        self._outer: Status | None = None

    def __enter__(self) -> Self:
        global _current
        self._outer, _current = _current, self
        if self._outer:
            self._outer.clear()
        if self.mode != "quiet":
            self._thread = threading.Thread(target=self._watch, daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        global _current  # noqa: PLW0603
        self._ended.set()
        _current = self._outer
        self.clear()

    def show(self, work: Work) -> None:
        """Take the present state of the work, and draw it if the stream allows a line to be redrawn."""
        now = time.monotonic()
        with self._lock:
            if work.total:
                self.estimate.feed(work, now)
            self._work = work
            if self.live and (now - self._drawn >= REDRAW_SECONDS or work.done == work.total > 0):
                self._draw(now)

    def say(self, text: str) -> None:
        """Print text on lines of its own, above the line."""
        with self._lock:
            self._spoken = time.monotonic()
            self._write((ERASE if self._shown else "") + text + "\n")
            self._shown = False

    def fold(self, text: str) -> str:
        """Return a text in lines that fit a terminal, broken between words; elsewhere as it is."""
        return textwrap.fill(text, max(20, self._measure_terminal() - 4), break_long_words=False) if self.live else text

    def clear(self) -> None:
        with self._lock:
            if self._shown:
                self._write(ERASE)
                self._shown = False

    def describe(self, now: float, width: int = WIDTH) -> str:
        return render(
            self.step, self._work, now - self._began, self.estimate.left(now) if self._work.total else None, width
        )

    def _draw(self, now: float) -> None:
        if self._ended.is_set() or _current is not self:
            return
        # One column stays free: some terminals break a line that fills the last.
        line = self.describe(now, max(1, self._measure_terminal() - 1))
        self._drawn, self._spoken, self._shown = now, now, True
        self._write(f"\r{self._change(line)}\x1b[K")

    def _measure_terminal(self) -> int:
        try:
            columns = os.get_terminal_size(self.stream.fileno()).columns
        except (OSError, ValueError):
            columns = 0
        return columns or shutil.get_terminal_size((WIDTH, 24)).columns

    def _watch(self) -> None:
        while not self._ended.wait(self._pause()):
            now = time.monotonic()
            with self._lock:
                if self.live:
                    self._draw(now)
                elif now - self._spoken >= LINE_SECONDS and _current is self:
                    self.say(self.describe(now))

    def _pause(self) -> float:
        return TICK_SECONDS if self.live else max(0.01, self._spoken + LINE_SECONDS - time.monotonic())

    def _write(self, text: str) -> None:
        # A reader that is gone, as in `toolkit up 2>&1 | head`, or a closed stream must not end the work.
        with suppress(OSError, ValueError):
            self.stream.write(text)
            self.stream.flush()


_current: Status | None = None


def report(work: Work) -> None:
    """Show work on the line of this process, if there is one."""
    if _current:
        _current.show(work)


class Reported(io.FileIO):
    """A file to send, which reports how much of it was read."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._work = Work(path.name, 0, path.stat().st_size, "bytes")

    def read(self, size: int | None = -1, /) -> bytes:
        piece = super().read(size) or b""
        report(self._work._replace(done=self.tell()))
        return piece


def redirect(bar: type[Any]) -> type[Any]:
    """Return a bar of tqdm's kind that reports bytes, and draws nothing."""

    class Bar(bar):  # type: ignore[misc]
        def __init__(self, *words: Any, **options: Any) -> None:
            super().__init__(*words, **{**options, "file": io.StringIO()})

        def display(self, *_words: Any, **_options: Any) -> None:
            if self.unit == "B":
                report(Work("", self.n, self.total or 0, "bytes"))

    return Bar


def say(text: str) -> bool:
    """Print text above the line of this process; return whether there is one."""
    if _current is None:
        return False
    _current.say(text)
    return True
