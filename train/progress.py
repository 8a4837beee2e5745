"""What the user sees while training: a bar with rate and remaining time on a terminal, a line an epoch elsewhere."""

import sys
import time
from typing import TextIO

from train.config import Progress
from train.metrics import EpochRecord

WIDTH = 24
REDRAW_SECONDS = 0.1


class Display:
    """Shows a run on a stream."""

    def __init__(self, kind: Progress, batch_size: int, *, stream: TextIO | None = None) -> None:
        self.stream = stream or sys.stderr
        self.bar = kind == "auto" and self.stream.isatty()
        self.quiet = kind == "quiet"
        self.batch_size = batch_size
        self.first: tuple[int, float] | None = None
        self.drawn = 0.0

    def say(self, text: str) -> None:
        """Print one line, above the bar if there is one."""
        if not self.quiet:
            self.stream.write(("\r\033[K" if self.bar else "") + text + "\n")
            self.stream.flush()

    def show_step(self, step: int, total: int, epoch: int, loss: float, accuracy: float) -> None:
        """Move the bar; `step` of `total` steps are done."""
        now = time.monotonic()
        self.first = self.first or (step, now)
        if not self.bar or (now - self.drawn < REDRAW_SECONDS and step < total):
            return
        self.drawn = now
        done = step - self.first[0]
        rate = done / (now - self.first[1]) if done and now > self.first[1] else 0.0
        left = format_seconds((total - step) / rate) if rate else "?"
        filled = WIDTH * step // max(1, total)
        text = (
            f"epoch {epoch} [{'#' * filled}{'.' * (WIDTH - filled)}] {step}/{total}"
            f"  loss {loss:.4f}  accuracy {accuracy:.1%}  {rate * self.batch_size:.0f} images/s  {left} left"
        )
        self.stream.write(f"\r\033[K{text}")
        self.stream.flush()

    def show_epoch(self, record: EpochRecord, epochs: int) -> None:
        """Print the line of an epoch."""
        self.say(
            f"epoch {record.epoch}/{epochs}  loss {record.train_loss:.4f}  accuracy {record.train_accuracy:.2%}"
            f"  test loss {record.test_loss:.4f}  test accuracy {record.test_accuracy:.2%}"
            f"  {record.images_per_second:.0f} images/s"
        )


def format_seconds(seconds: float) -> str:
    """A duration as people say it: 42s, 3m 05s, 2h 07m."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m {whole % 60:02d}s"
    return f"{whole // 3600}h {whole % 3600 // 60:02d}m"
