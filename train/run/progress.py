import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from train.record.metrics import EpochRecord
from train.system import output
from train.system.progress import Mode, Status, Work


class Display:
    """What a job prints: messages, and one line of progress."""

    def __init__(self, kind: Mode, batch_size: int = 0, *, stream: TextIO | None = None) -> None:
        self.stream = stream or sys.stderr
        self.quiet = kind == "quiet"
        self.batch_size = batch_size
        self._status = Status("train", kind, stream=self.stream, change=output.translate)
        self._step = Work()

    @contextmanager
    def speaking(self) -> Iterator[None]:
        """Show the line of progress while the block runs."""
        with self._status:
            yield

    def begin(self, work: str) -> None:
        self._status.show(self._step._replace(text=work))

    def say(self, text: str) -> None:
        if not self.quiet:
            self._status.say(output.indent(output.clean(output.translate(text))))

    def warn(self, text: str) -> None:
        self._status.say(output.indent(output.clean(output.translate(f"warning: {text}"))))

    def show_step(self, step: int, total: int, epoch: int, loss: float, accuracy: float) -> None:
        cost = self._status.estimate.cost
        rate = f", {format_rate(self.batch_size / cost)}" if cost and self.batch_size else ""
        text = f"epoch {epoch}, loss {loss:.4f}, accuracy {accuracy:.1%}{rate}"
        self._step = Work(text, step, total, "steps")
        self._status.show(self._step)

    def show_epoch(self, record: EpochRecord, epochs: int) -> None:
        self.say(
            f"epoch {record.epoch}/{epochs}  loss {record.train_loss:.4f}  accuracy {record.train_accuracy:.2%}"
            f"  test loss {record.test_loss:.4f}  test accuracy {record.test_accuracy:.2%}"
            # The first step does not count, because it makes the graph. So an epoch of one step may have no rate.
            + (f"  {format_rate(record.images_per_second)}" if record.images_per_second else "")
        )


def format_rate(rate: float) -> str:
    return f"{round_roughly(rate)} images/s"


def round_roughly(number: float) -> str:
    """Return a number with at least two digits, so that a small one does not become 0."""
    return f"{number:.0f}" if number >= 9.95 else f"{number:.1f}".removesuffix(".0")
