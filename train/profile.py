"""A profile of chosen steps, to be looked at in TensorBoard."""

from pathlib import Path
from types import TracebackType
from typing import Self

import tensorflow as tf


class Profile:
    """Records from before the first to after the last of a range of steps, counted from 1; nothing without a range."""

    def __init__(self, steps: tuple[int, int] | None, folder: Path) -> None:
        self.steps, self.folder, self.running = steps, folder, False

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

    def _stop(self) -> None:
        if self.running:
            tf.profiler.experimental.stop()
            self.running = False
