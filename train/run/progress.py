import contextlib
import json
import os
import re
import sys
import threading
import time
from collections.abc import Iterator
from typing import Final, NamedTuple, TextIO

from train.config.run import Progress
from train.record.metrics import EpochRecord

WIDTH = 24
REDRAW_SECONDS = 0.1
SILENCE_SECONDS = 50.0
"""Longest time without a line. It is less than a minute, because a busy machine prints late."""


class Step(NamedTuple):
    number: int
    total: int
    epoch: int
    loss: float
    accuracy: float
    when: float


class Display:
    def __init__(self, kind: Progress, batch_size: int = 0, *, stream: TextIO | None = None) -> None:
        self.stream = stream or sys.stderr
        self.bar = kind == "auto" and self.stream.isatty()
        self.quiet = kind == "quiet"
        self.batch_size = batch_size
        self._lock = threading.RLock()
        self._first: Step | None = None
        self._last: Step | None = None
        self._work, self._began = "", time.monotonic()
        self._drawn = 0.0
        self._spoken = time.monotonic()

    @contextlib.contextmanager
    def speaking(self) -> Iterator[None]:
        """While the block runs, print a line about the current work if nothing else was printed for long."""
        ended = threading.Event()

        def watch() -> None:
            while not ended.wait(max(0.01, self._spoken + SILENCE_SECONDS - time.monotonic())):
                with self._lock:
                    if time.monotonic() - self._spoken >= SILENCE_SECONDS:
                        self.say(self._describe_work())

        thread = None if self.bar or self.quiet else threading.Thread(target=watch, daemon=True)
        if thread:
            thread.start()
        try:
            yield
        finally:
            ended.set()
            if thread:
                thread.join()

    def begin(self, work: str) -> None:
        with self._lock:
            self._work, self._began = work, time.monotonic()

    def say(self, text: str) -> None:
        if not self.quiet:
            self._write(("\r\033[K" if self.bar else "") + text + "\n")

    def warn(self, text: str) -> None:
        self._write(("\r\033[K" if self.bar else "") + f"warning: {text}\n")

    def show_step(self, step: int, total: int, epoch: int, loss: float, accuracy: float) -> None:
        now = time.monotonic()
        with self._lock:
            self._work, self._last = "", Step(step, total, epoch, loss, accuracy, now)
            self._first = self._first or self._last
        if not self.bar or (now - self._drawn < REDRAW_SECONDS and step < total):
            return
        self._drawn = now
        filled = WIDTH * step // max(1, total)
        bar = f"[{'#' * filled}{'.' * (WIDTH - filled)}] "
        self._write("\r\033[K" + self._fit(self._describe_step(self._last, bar), bar))

    def _fit(self, line: str, bar: str) -> str:
        """Return a line that a redraw can replace: without the bar, and cut, where the terminal would break it."""
        try:
            width = os.get_terminal_size(self.stream.fileno()).columns - 1
        except (OSError, ValueError):
            return line
        if 0 <= width < len(line):
            line = line.replace(bar, "")[:width]
        return line

    def show_epoch(self, record: EpochRecord, epochs: int) -> None:
        self.say(
            f"epoch {record.epoch}/{epochs}  loss {record.train_loss:.4f}  accuracy {record.train_accuracy:.2%}"
            f"  test loss {record.test_loss:.4f}  test accuracy {record.test_accuracy:.2%}"
            f"  {record.images_per_second:.0f} images/s"
        )

    def _write(self, text: str) -> None:
        with self._lock, contextlib.suppress(OSError, ValueError):
            self._spoken = time.monotonic()
            self.stream.write(translate(text))
            self.stream.flush()

    def _describe_step(self, last: Step, bar: str) -> str:
        first = self._first or last
        done, spent = last.number - first.number, last.when - first.when
        rate = done / spent if done and spent > 0 else 0.0
        left = format_seconds((last.total - last.number) / rate) if rate else "?"
        return (
            f"epoch {last.epoch} {bar}{last.number}/{last.total}  loss {last.loss:.4f}  accuracy {last.accuracy:.1%}"
            f"  {rate * self.batch_size:.0f} images/s  {left} left"
        )

    def _describe_work(self) -> str:
        now = time.monotonic()
        if self._work or not self._last:
            return f"{self._work or 'at work'}: {format_seconds(now - self._began)} so far"
        text = self._describe_step(self._last, "step ")
        age = now - self._last.when
        return text if age < SILENCE_SECONDS else f"{text}; step {self._last.number + 1} takes {format_seconds(age)}"


def format_seconds(seconds: float) -> str:
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m {whole % 60:02d}s"
    return f"{whole // 3600}h {whole % 3600 // 60:02d}m"


VARIABLE: Final = "TOOLKIT_PATHS"
"""Environment variable with a JSON object: for each mount its path inside and its path outside of the container."""


def translate(text: str) -> str:
    """Replace paths inside a container by the user's paths. Records keep the container's paths."""
    names = _read_mounts()
    if not names:
        return text
    # Longest first, so that the inner one of two nested mounts matches.
    inside = "|".join(re.escape(path) for path in sorted(names, key=len, reverse=True))
    return re.sub(rf"(?<![\w./-])(?:{inside})(?![\w-]|\.\w)", lambda match: names[match[0]], text)


def _read_mounts() -> dict[str, str]:
    try:
        value = json.loads(os.environ.get(VARIABLE, "{}"))
    except ValueError:
        return {}
    pairs = value.items() if isinstance(value, dict) else ()
    return {path: name for path, name in pairs if isinstance(name, str) and path.startswith("/") and path != "/"}
