"""The training loop: steps, epochs, what is recorded and saved after each."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from train import augmentation, checkpoint, plot
from train.augmentation import Augmentation
from train.checkpoint import Position
from train.config import TrainConfig, read_table
from train.data import Dataset
from train.errors import CheckError, InterruptionError
from train.evaluation import Evaluation, evaluate
from train.metrics import EpochRecord, Recorder
from train.order import count_steps, locate, select
from train.progress import Display
from train.schedule import rate_at
from train.state import State
from train.step import EvaluationStep, TrainStep


@dataclass(frozen=True)
class Batches:
    """The batches of a run as a pure function of the step."""

    dataset: Dataset
    config: TrainConfig

    @property
    def steps_per_epoch(self) -> int:
        """Steps in an epoch."""
        return count_steps(len(self.dataset.train), self.config.batch_size)

    @property
    def total(self) -> int:
        """Steps in the run."""
        return self.config.steps or self.config.epochs * self.steps_per_epoch

    def indices(self, step: int) -> NDArray[np.int64]:
        """Which training examples a step sees, `step` counted from 0."""
        return select(self.config.seed, step, len(self.dataset.train), self.config.batch_size)

    def make(self, step: int) -> tuple[NDArray[np.uint8], NDArray[np.int32]]:
        """Images and labels of a step, augmented."""
        chosen = self.indices(step)
        images, labels = self.dataset.train.images[chosen], self.dataset.train.labels[chosen]
        if not self.config.augment:
            return images, labels
        facts = read_table("datasets")[self.config.dataset]
        kind = Augmentation(facts["pad"], facts["flip"])
        epoch, _ = locate(step, len(self.dataset.train), self.config.batch_size)
        draws = augmentation.draw(kind, self.config.seed, epoch, len(self.dataset.train))[chosen]
        return augmentation.apply(images, draws, kind.pad, np.rint(self.dataset.mean).astype(np.uint8)), labels


@dataclass
class Loop:
    """A run under way.

    Attributes:
        stop: asked after each step; says why to stop, or nothing.
        first_step_seconds: time of this process' first step, once it is done.
    """

    config: TrainConfig
    batches: Batches
    state: State
    train_step: TrainStep
    evaluation_step: EvaluationStep
    folder: Path
    display: Display
    stop: Callable[[], str]
    first_step_seconds: float | None = None

    def run(self, position: Position) -> tuple[Position, Evaluation]:
        """Train from a position to the end; returns the last position and the evaluation there.

        Raises:
            InterruptionError: asked to stop; the state is saved.
            CheckError: the loss is no number any more.
            PreflightError: something could not be written.
        """
        evaluation = None
        with Recorder(self.folder, position.step) as recorder:
            for step in range(position.step, self.batches.total):
                position = self._advance(step, position, recorder)
                at_end = position.step == self.batches.total
                if at_end or position.step % self.batches.steps_per_epoch == 0:
                    evaluation = evaluate(self.evaluation_step, self.batches.dataset.test)
                    position = self._close_epoch(position, evaluation, recorder)
                    self._save(position)
                elif self.config.checkpoint_every and position.step % self.config.checkpoint_every == 0:
                    self._save(position)
                reason = "" if at_end else self.stop()
                if reason:
                    self._save(position)
                    raise InterruptionError(
                        f"stopped by {reason} after step {position.step} of {self.batches.total}; the state is saved",
                        remedy="the same command again goes on from there",
                    )
        return position, evaluation or evaluate(self.evaluation_step, self.batches.dataset.test)

    def _advance(self, step: int, position: Position, recorder: Recorder) -> Position:
        began = time.monotonic()
        images, labels = self.batches.make(step)
        rate = rate_at(self.config.schedule, self.config.learning_rate, step, self.batches.total)
        outcome = self.train_step(tf.constant(images), tf.constant(labels), tf.constant(rate, tf.float32))
        loss = float(outcome.loss)
        if not math.isfinite(loss):
            self._refuse(step, loss)
        spent = time.monotonic() - began
        if self.first_step_seconds is None:
            self.first_step_seconds, spent = spent, 0.0
            self.display.say(f"first step: {self.first_step_seconds:.1f} s, most of it to make the graph")
        position = replace(
            position,
            step=step + 1,
            seconds=position.seconds + spent,
            epoch_seconds=position.epoch_seconds + spent,
            loss_sum=position.loss_sum + loss * len(labels),
            correct=position.correct + int(outcome.correct),
            seen=position.seen + len(labels),
        )
        if position.step % self.config.log_every == 0:
            recorder.add_step(position.step, loss=loss, learning_rate=rate, seconds=position.seconds)
        epoch = step // self.batches.steps_per_epoch + 1
        self.display.show_step(
            position.step, epoch, position.loss_sum / position.seen, position.correct / position.seen
        )
        return position

    def _close_epoch(self, position: Position, evaluation: Evaluation, recorder: Recorder) -> Position:
        """Record and draw an epoch; returns the position at the start of the next."""
        record = EpochRecord(
            epoch=math.ceil(position.step / self.batches.steps_per_epoch),
            step=position.step,
            learning_rate=rate_at(
                self.config.schedule, self.config.learning_rate, position.step - 1, self.batches.total
            ),
            train_loss=position.loss_sum / position.seen,
            train_accuracy=position.correct / position.seen,
            test_loss=evaluation.loss,
            test_accuracy=evaluation.accuracy,
            images_per_second=position.seen / position.epoch_seconds if position.epoch_seconds else 0.0,
            seconds=position.seconds,
        )
        recorder.add_epoch(record)
        plot.draw_records(recorder.epochs, self.config.as_dict(), self.folder / "curves.png")
        self.display.show_epoch(record, math.ceil(self.batches.total / self.batches.steps_per_epoch))
        return replace(position, epoch_seconds=0.0, loss_sum=0.0, correct=0, seen=0)

    def _save(self, position: Position) -> None:
        checkpoint.save(self.folder / "checkpoints", self.state.read(), position, keep=self.config.keep)

    def _refuse(self, step: int, loss: float) -> None:
        saved = checkpoint.newest(self.folder / "checkpoints")
        numbers = ", ".join(str(index) for index in self.batches.indices(step))
        raise CheckError(
            f"the loss of step {step + 1} is {loss}",
            why=f"training diverged, or the batch holds bad data; its training examples are {numbers}",
            remedy=f"lower --learning-rate; last good checkpoint: {saved or 'none, this was before the first'}",
        )
