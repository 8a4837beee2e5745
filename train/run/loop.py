import itertools
import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Protocol, Self

import keras
import numpy as np
import tensorflow as tf

from train.config.configuration import TrainConfig
from train.data import Split
from train.errors import CheckError, InterruptionError
from train.input.batches import Batch, Batches, make_ahead
from train.record import checkpoint
from train.record.checkpoint import Position
from train.record.metrics import EpochRecord, Listener, Recorder
from train.report import plot
from train.run.display import Display, Forecast, Task
from train.run.shards import ShardedStep
from train.step.evaluation import Evaluation, EvaluationStep, evaluate, evaluation_batch
from train.step.state import State
from train.step.training import Outcome, PackedOutcome, TrainStep
from train.system import signals
from train.system.files import writing
from train.system.signals import StopSignal

CURVES_SECONDS: Final = 10.0
"""How old the drawn curves may be in seconds. To draw them takes as long as many steps of a small network."""


class Profile:
    """A profile of a range of steps, counted from 1, for TensorBoard. Without a range it does nothing."""

    def __init__(self, steps: tuple[int, int] | None, folder: Path) -> None:
        self.steps, self.folder, self.running = steps, folder, False
        self._marker: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def move(self, done: int) -> None:
        if self.steps and done == self.steps[0] - 1:
            tf.profiler.experimental.start(str(self.folder))
            self.running = True
        elif self.steps and done == self.steps[1]:
            self._stop()
        if self.running:
            self._mark(done + 1)

    def _mark(self, step: int) -> None:
        self._close_marker()
        self._marker = tf.profiler.experimental.Trace("train", step_num=step, _r=1)
        self._marker.__enter__()

    def _close_marker(self) -> None:
        if self._marker:
            self._marker.__exit__(None, None, None)
            self._marker = None

    def _stop(self) -> None:
        if self.running:
            self._close_marker()
            self.running = False
            with writing(self.folder, tf.errors.OpError):
                tf.profiler.experimental.stop()


class _EarlyEnd(Exception):  # noqa: N818  # it is no error
    pass


@dataclass
class Loop:
    """A run in progress. Each step advances `position`."""

    config: TrainConfig
    batches: Batches
    state: State
    train_step: TrainStep
    evaluation_step: EvaluationStep
    folder: Path
    display: Display
    stop: StopSignal
    position: Position
    late: bool = False  # whether the outcome of a step is read after the next step has begun
    # whether the training images are on the device, so that a step gets only their indices and augmentation
    resident: bool = False
    sharded: ShardedStep | None = None  # the step, if it has shards
    listener: Listener | None = None
    evaluation: Evaluation | None = None
    forecast: Forecast | None = None  # None once the forecast is printed
    first_step_seconds: float | None = None
    after_first_step: Callable[[], None] | None = None  # what can wait until training has begun
    _began: float = field(default=0.0, init=False)
    _drawn: float = field(default=-math.inf, init=False)  # when the curves were drawn
    _comparable: bool = field(default=True, init=False)  # whether all workers have the same weights

    def run(self) -> Evaluation:
        self._train()
        return self._finish()

    def _train(self) -> None:
        """Train to the last step. The run may end before it, after too many epochs without improvement."""
        signals.check()
        start, total = self.position.step, self.batches.total
        with (
            Recorder(self.folder, start, self._tell) as recorder,
            Profile(self.config.profile, self.folder / "tb") as profile,
        ):

            def report(outcome: Outcome | PackedOutcome, *, last: bool = True) -> None:
                self._account(outcome, recorder)
                self._do_what_waited()
                profile.move(self.position.step)
                if last:  # no later step has begun, so the state is that of this step
                    self._close_step(recorder)
                if self.forecast:
                    self._look_ahead(self.forecast, start)
                self._began = time.monotonic()

            def must_end(done: int) -> bool:
                due = self._is_end(start + done) or self._is_saved(start + done)
                return done == 1 or due or self.config.profile is not None or bool(self.stop())

            if not start and self.config.loop != "eager":
                recorder.add_graph(self.evaluation_step, evaluation_batch(self.batches.dataset.watched))
            if self.position.seen and self._is_end(start):  # the run was stopped while it evaluated this epoch
                self._close_step(recorder)
            profile.move(start)
            self._began = time.monotonic()
            count = 0 if self.is_over else total - start
            batches = itertools.islice(self.batches.iterate(start, resident=self.resident), count)
            with suppress(_EarlyEnd):
                if not count:
                    pass
                elif self.config.loop == "fit":
                    run_by_fit(self.train_step, batches, report, count)
                elif self.late:
                    run_late(self.train_step, make_ahead(batches), report, must_end)
                else:
                    run_by_steps(self.train_step, batches, report)

    def _do_what_waited(self) -> None:
        if self.after_first_step:
            self.after_first_step()
            self.after_first_step = None

    def _tell(self, kind: str, step: int, values: Mapping[str, float]) -> None:
        if self.listener:
            self.listener(kind, step, values)

    def _finish(self) -> Evaluation:
        """Return the evaluation of the final state. If the best epoch counts, its state is restored and saved first."""
        self._do_what_waited()  # if there was no step left
        if self.config.best:
            self.state.restore_best()
            self._comparable = False  # only the chief has the best weights
            self.save()
            return self.evaluate(self.batches.dataset.watched)
        return self.evaluation or self.evaluate(self.batches.dataset.watched)

    @property
    def epoch(self) -> int:
        """The number of the epoch that the last step was in, counted from 1."""
        return math.ceil(self.position.step / self.batches.steps_per_epoch)

    @property
    def is_over(self) -> bool:
        """Whether training ends here: after the last step, or after too many epochs without improvement."""
        now = self.position
        waited = self.epoch - now.best[0] if now.best else 0
        return now.step == self.batches.total or (0 < self.config.patience <= waited and not now.seen)

    def evaluate(self, split: Split) -> Evaluation:
        """Evaluate the model on a split. If asked to stop, save the state and raise an InterruptionError."""
        self.display.begin("evaluating")
        with self.state.evaluating():
            evaluation = evaluate(self.evaluation_step, split, self.stop)
        if evaluation is None:
            raise self._save_and_stop(self.stop())
        return evaluation

    def _account(self, outcome: Outcome | PackedOutcome, recorder: Recorder) -> None:
        (loss, correct), step, size = outcome.read(), self.position.step, self.batches.size
        if not math.isfinite(loss):
            raise self._refuse(f"the loss of step {step + 1} is {loss}", step)
        ended = time.monotonic()
        spent, self._began = ended - self._began, ended
        if self.first_step_seconds is None:
            self.first_step_seconds, spent = spent, 0.0
            self.stop.begin_saving()
            self.display.say(f"first step: {self.first_step_seconds:.1f} s, most of it to make the graph")
        elif self.forecast:
            self.forecast.add_step(spent)
        now = self.position = replace(
            self.position,
            step=step + 1,
            seconds=self.position.seconds + spent,
            epoch_seconds=self.position.epoch_seconds + spent,
            loss_sum=self.position.loss_sum + loss * size,
            correct=self.position.correct + correct,
            seen=self.position.seen + size,
        )
        if now.step % self.config.log_every == 0:
            recorder.add_step(now.step, loss=loss, learning_rate=self.batches.rate(step), seconds=now.seconds)
        epoch = step // self.batches.steps_per_epoch + 1
        self.display.show_step(now.step, self.batches.total, epoch, now.loss_sum / now.seen, now.correct / now.seen)

    def _look_ahead(self, forecast: Forecast, start: int) -> None:
        """Print how long a long run will take, once enough is measured."""
        if self._is_end(self.position.step):
            forecast.add_end(time.monotonic() - self._began)
        if not forecast.is_ready:
            return
        self.forecast, batches, dataset = None, self.batches, self.batches.dataset
        task = Task(
            config=self.config,
            steps=batches.total,
            done=start,
            epoch_steps=batches.steps_per_epoch,
            batch=batches.size,
            trained=len(dataset.train),
            evaluated=len(dataset.watched),
        )
        if text := forecast.describe(task):
            self.display.say(text)

    def _is_end(self, step: int) -> bool:
        return step == self.batches.total or step % self.batches.steps_per_epoch == 0

    def _is_saved(self, step: int) -> bool:
        return self.config.checkpoint_every > 0 and step % self.config.checkpoint_every == 0

    def _close_step(self, recorder: Recorder) -> None:
        step = self.position.step
        if self._is_end(step):
            self.evaluation = self.evaluate(self.batches.dataset.watched)
            self._close_epoch(self.evaluation, recorder)
            self.save()
        elif self._is_saved(step) or self.is_over:
            self.save()
        if self.is_over and step < self.batches.total:
            raise _EarlyEnd
        reason = "" if self.is_over else self.stop()
        if reason:
            raise self._save_and_stop(reason)

    def _save_and_stop(self, reason: str) -> InterruptionError:
        self.save()
        # Ctrl-C comes as SIGINT, or from the toolkit as SIGTERM: neither name tells the user anything.
        heard = "" if reason in {"SIGINT", "SIGTERM"} else f" ({reason})"
        return InterruptionError(
            f"stopped as asked{heard} after step {self.position.step} of {self.batches.total}; the state is saved",
            remedy="The same command goes on from there",
        )

    def _close_epoch(self, evaluation: Evaluation, recorder: Recorder) -> None:
        now = self.position
        record = EpochRecord(
            epoch=self.epoch,
            step=now.step,
            learning_rate=self.batches.rate(now.step - 1),
            train_loss=now.loss_sum / now.seen,
            train_accuracy=now.correct / now.seen,
            test_loss=evaluation.loss,
            test_accuracy=evaluation.accuracy,
            images_per_second=now.seen / now.epoch_seconds if now.epoch_seconds else 0.0,
            seconds=now.seconds,
        )
        recorder.add_epoch(record)
        self.display.show_epoch(record, math.ceil(self.batches.total / self.batches.steps_per_epoch))
        self.position = replace(now, epoch_seconds=0.0, loss_sum=0.0, correct=0, seen=0)
        score = [evaluation.accuracy, evaluation.loss]
        if (self.config.best or self.config.patience) and (not now.best or score[0] > now.best[1]):
            self.position = replace(self.position, best=[self.epoch, *score])
            if self.config.best:
                self.state.keep_best()
        if self.is_over or time.monotonic() - self._drawn >= CURVES_SECONDS:
            plot.draw_records(recorder.epochs, self.config, self.folder / "curves.png")
            self._drawn = time.monotonic()

    def end(self, code: int) -> None:
        """Tell the other workers that the run ends with this exit code."""
        if self.sharded:
            self.sharded.end(code)

    def save(self) -> None:
        values, step = self.state.read(), self.position.step
        # A gradient can overflow although the loss is finite. The weights that result must not replace good ones.
        for name, value in values.items():
            if not np.isfinite(value).all():
                raise self._refuse(f"{name} holds no numbers any more after step {step}", step - 1)
        if self.sharded and self._comparable:
            self.sharded.compare(values, step)
        checkpoint.save(self.folder / "checkpoints", values, self.position, keep=self.config.keep)

    def _refuse(self, message: str, step: int) -> CheckError:
        saved = checkpoint.newest(self.folder / "checkpoints")
        numbers = ", ".join(str(index) for index in self.batches.indices(step))
        return CheckError(
            message,
            why=f"training diverged, or the batch holds bad data; its training examples are {numbers}",
            remedy=f"lower --learning-rate; last good checkpoint: {saved or 'none, this was before the first'}",
        )


class Report(Protocol):
    def __call__(self, outcome: Outcome | PackedOutcome, *, last: bool = True) -> None: ...


def run_by_steps(step: TrainStep, batches: Iterator[Batch], report: Report) -> None:
    for images, labels, rate in batches:
        report(step(tf.constant(images), tf.constant(labels), tf.constant(rate)))


def run_late(step: TrainStep, batches: Iterable[Batch], report: Report, must_end: Callable[[int], bool]) -> None:
    """Run steps. Each is reported after the next one has begun, or at once if `must_end` says so.

    `must_end` gets the number of the step, counted from 1.
    """
    waiting: deque[Outcome | PackedOutcome] = deque()
    for done, batch in enumerate(batches, start=1):
        waiting.append(step(*batch))
        left = 0 if must_end(done) else 1
        while len(waiting) > left:
            report(waiting.popleft(), last=not waiting)


def run_by_fit(step: TrainStep, batches: Iterator[Batch], report: Report, count: int) -> None:
    first = next(batches)
    signature = tuple(tf.TensorSpec.from_tensor(tf.constant(value)) for value in first)
    data = tf.data.Dataset.from_generator(lambda: itertools.chain([first], batches), output_signature=signature)
    model = keras.Model()  # without layers, because `fit` needs only the method `train_step`
    model.built, model.train_step = True, lambda batch: step(*batch)._asdict()
    # The step is compiled already. Keras itself would only warn that it does not compile deterministic operations.
    model.compile(jit_compile=False)
    report_step = keras.callbacks.LambdaCallback(on_train_batch_end=lambda _, logs: report(Outcome(**logs)))
    model.fit(data, epochs=1, steps_per_epoch=count, shuffle=False, verbose=0, callbacks=[report_step])
