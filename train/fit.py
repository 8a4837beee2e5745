"""The same steps driven by Keras' ``fit``, for those who know it: the step, the batches and the numbers are ours."""

from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf

from train.batches import Batch
from train.step import Outcome, TrainStep


class _Fitted(keras.Model):  # type: ignore[misc]  # keras has no types
    """A model whose training step is the given function."""

    def __init__(self, step: TrainStep) -> None:
        super().__init__()
        self.step = step
        self.built = True

    def train_step(self, data: Any) -> dict[str, tf.Tensor]:
        """One step, called by ``fit``."""
        outcome: Outcome = self.step(*data)
        return outcome._asdict()


class _Report(keras.callbacks.Callback):  # type: ignore[misc]  # keras has no types
    def __init__(self, report: Callable[[Outcome], None]) -> None:
        super().__init__()
        self.report = report

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        del batch
        self.report(Outcome(**(logs or {})))


def fit(step: TrainStep, batches: Iterator[Batch], report: Callable[[Outcome], None], count: int) -> None:
    """Run all `count` batches through ``keras.Model.fit`` and report each step; what `report` raises comes through."""
    first = next(batches)
    signature = tuple(tf.TensorSpec.from_tensor(tf.constant(value)) for value in first)

    def generate() -> Iterator[Batch]:
        yield first
        yield from batches

    model = _Fitted(step)
    # The step is compiled already. Keras itself would not, where operations are deterministic, but only warn of it.
    model.compile(jit_compile=False)
    data = tf.data.Dataset.from_generator(generate, output_signature=signature)
    model.fit(data, epochs=1, steps_per_epoch=count, shuffle=False, verbose=0, callbacks=[_Report(report)])
