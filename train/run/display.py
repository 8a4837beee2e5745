"""Prints what a job says and its line of progress, and forecasts how long the run will take.

The forecast follows from the time of the run's first steps.
"""

import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Final, TextIO

from train.config.configuration import TrainConfig
from train.data.order import count_steps
from train.record.metrics import EpochRecord
from train.system import output
from train.system.output import LogFormat
from train.system.progress import Mode, Status, Work


class Display:
    """What a job prints: messages, and one line of progress."""

    def __init__(
        self, kind: Mode, batch_size: int = 0, *, form: LogFormat = "text", stream: TextIO | None = None
    ) -> None:
        self.stream = stream or sys.stderr
        self.quiet = kind == "quiet"
        self.batch_size = batch_size
        self.form = form
        mode: Mode = "quiet" if form == "json" else kind
        self._status = Status("train", mode, stream=self.stream, change=output.translate)
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
            self._tell("message", text)

    def warn(self, text: str) -> None:
        self._tell("warning", text if self.form == "json" else f"warning: {text}")

    def _tell(self, kind: str, text: str) -> None:
        text = output.translate(text)
        if self.form == "json":
            output.say_event(kind, text=text)
        else:
            self._status.say(output.indent(output.clean(text)))

    def show_step(self, step: int, total: int, epoch: int, loss: float, accuracy: float) -> None:
        cost = self._status.estimate.cost
        rate = f", {format_rate(self.batch_size / cost)}" if cost and self.batch_size else ""
        text = f"epoch {epoch}, loss {loss:.4f}, accuracy {accuracy:.1%}{rate}"
        self._step = Work(text, step, total, "steps")
        self._status.show(self._step)

    def show_epoch(self, record: EpochRecord, epochs: int) -> None:
        if self.form == "json":
            if not self.quiet:
                output.say_event("epoch", **asdict(record))
            return
        self.say(
            self._status.fold(
                f"epoch {record.epoch}/{epochs}  loss {record.train_loss:.4f}  accuracy {record.train_accuracy:.2%}"
                f"  test loss {record.test_loss:.4f}  test accuracy {record.test_accuracy:.2%}"
                # The first step does not count, because it makes the graph. So an epoch of one step may have no rate.
                + (f"  {format_rate(record.images_per_second)}" if record.images_per_second else "")
            )
        )


LONG_SECONDS: Final = 600.0
"""A forecast is printed only for a run that takes longer."""

MEASURED_SECONDS: Final = 10.0
FEWEST_STEPS: Final = 3

FORWARD: Final = 1 / 3
"""Time to evaluate an image as a share of that to train with it: a gradient costs about twice as much as a value."""


@dataclass(frozen=True)
class Task:
    """What a run still has to do when its first step begins."""

    config: TrainConfig
    steps: int
    done: int  # steps that were done before, in a run that is resumed or continued
    epoch_steps: int
    batch: int  # images of a step
    trained: int  # images of an epoch
    evaluated: int  # images that are evaluated after each epoch


@dataclass
class Forecast:
    """Measures steps and the ends of epochs, until there is enough to estimate the rest of the run.

    The first step of a process does not count, because most of its time is spent on making the graph. For the same
    reason the first evaluation is left out here.
    """

    long: float = LONG_SECONDS
    measured: float = MEASURED_SECONDS
    _steps: int = field(default=0, init=False)
    _seconds: float = field(default=0.0, init=False)
    _ends: list[float] = field(default_factory=list, init=False)

    def add_step(self, seconds: float) -> None:
        self._steps += 1
        self._seconds += seconds

    def add_end(self, seconds: float) -> None:
        """Add the seconds between the last step of an epoch and the next one: evaluation, curves and checkpoint."""
        self._ends.append(seconds)

    @property
    def is_ready(self) -> bool:
        enough = self._seconds + sum(self._ends[1:]) >= self.measured and self._steps >= FEWEST_STEPS
        return enough and len(self._ends) != 1

    def estimate(self, steps: int, batch: int, trained: int, evaluated: int) -> float:
        """Return the seconds of a number of steps, with those of the evaluation after each epoch."""
        step = self._seconds / self._steps
        ends = self._ends[1:]
        end = sum(ends) / len(ends) if ends else evaluated * FORWARD * step / batch
        return steps * step + math.ceil(steps * batch / trained) * end

    def describe(self, task: Task) -> str:
        """Return the forecast in words, or an empty text for a short run."""
        left = task.steps - task.done
        seconds = self.estimate(left, task.batch, task.epoch_steps * task.batch, task.evaluated)
        if seconds <= self.long:
            return ""
        rate = task.batch * self._steps / self._seconds
        most = "at most " if task.config.patience else ""
        text = f"{_describe_left(task)}: {most}about {format_roughly(seconds)} at {format_rate(rate)}"
        quick = self._estimate_quick(task)
        return f"{text}; `--recipe quick`: about {format_roughly(quick)}" if 0 < quick < seconds else text

    def _estimate_quick(self, task: Task) -> float:
        """Return the seconds of the recipe ``quick``, or 0 if this run uses it, or if the user gave epochs or steps."""
        config, facts = task.config, task.config.facts
        epochs: dict[str, int] = facts["epochs"]
        if config.steps or task.done or config.recipe == "quick" or config.epochs != epochs[config.recipe]:
            return 0.0
        # The recipe of the paper may train on extra images, such as SVHN's extra split. The quick one does not.
        trained = facts["examples"] if facts.get(config.recipe, {}).get("extra") else task.trained
        steps = epochs["quick"] * count_steps(trained, task.batch)
        return self.estimate(steps, task.batch, trained, task.evaluated)


def _describe_left(task: Task) -> str:
    left = task.steps - task.done
    if task.config.steps:
        return f"{left:,} of {task.steps:,} steps are left" if task.done else f"{left:,} steps"
    epochs, rest = math.ceil(task.steps / task.epoch_steps), math.ceil(left / task.epoch_steps)
    return f"{rest} of {epochs} epochs are left" if task.done else f"{epochs} epochs"


def format_roughly(seconds: float) -> str:
    """Return a time in one unit, with about two digits."""
    for unit, size, most in (("s", 1, 90), ("min", 60, 90), ("h", 3600, 48)):
        if seconds < most * size:
            return f"{round_roughly(seconds / size)} {unit}"
    return f"{round_roughly(seconds / 86400)} days"


def format_rate(rate: float) -> str:
    return f"{round_roughly(rate)} images/s"


def round_roughly(number: float) -> str:
    """Return a number with at least two digits, so that a small one does not become 0."""
    return f"{number:.0f}" if number >= 9.95 else f"{number:.1f}".removesuffix(".0")
