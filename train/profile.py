"""A profile of chosen steps, to be looked at in TensorBoard."""

from pathlib import Path
from types import TracebackType
from typing import Any, Self

import tensorflow as tf

from train.files import writing


class Profile:
    """Records from before the first to after the last of a range of steps, counted from 1; nothing without a range."""

    def __init__(self, steps: tuple[int, int] | None, folder: Path) -> None:
        self.steps, self.folder, self.running = steps, folder, False
        self._marker: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def move(self, done: int) -> None:
        """Tell how many steps are done."""
        if self.steps and done == self.steps[0] - 1:
            tf.profiler.experimental.start(str(self.folder))
            self.running = True
        elif self.steps and done == self.steps[1]:
            self._stop()
        if self.running:
            self._mark(done + 1)

    def _mark(self, step: int) -> None:
        """Begin a step in the profile, from which the profiler's pages work out how long a step takes."""
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
