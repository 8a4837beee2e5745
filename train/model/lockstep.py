"""Runs the shards of a step side by side in one graph, so that they can exchange values in its middle.

Each shard is a call of the same function in a thread of its own. Only one thread works at a time: a shard works until
it has a value to exchange, then the next one works, and after the last one all have the values of all. So every shard
makes the same operations in the same order, on every worker.
"""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import reduce
from operator import add
from typing import TypeVar

import tensorflow as tf

Result = TypeVar("Result")
Gather = Callable[[tf.Tensor, int], tf.Tensor]
"""Takes the values of a worker, (its shards, ...), and the number of the call. Returns those of all workers."""


class ShardSync:
    """The shards of this worker, and how they exchange values with those of the others."""

    def __init__(self, local_count: int, shards: int, gather: Gather | None = None) -> None:
        self.local_count, self.shards, self.gather = local_count, shards, gather
        self.local = (
            threading.local()
        )  # what each shard's thread has of its own: its place, and the seed of its dropout

    @property
    def leads(self) -> bool:
        """Whether this is the first shard of this worker, which does what must be done once."""
        return bool(self.local.place == 0)

    def run(self, work: Callable[[int], Result]) -> list[Result]:
        """Return the results of `work` for each shard of this worker, counted from 0."""
        graph = None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
        self._turns = [threading.Semaphore(0) for _ in range(self.local_count)]
        self._values: list[tf.Tensor] = []
        self._exchanged: list[tf.Tensor] = []
        self._exchanges, self._failed = 0, False

        def run(place: int) -> Result:
            self.local.place = place
            try:
                self._await_turn(place)
                with graph.as_default() if graph else nullcontext():
                    return work(place)
            except BaseException:
                self._failed = True
                raise
            finally:
                self._turns[(place + 1) % self.local_count].release()

        with ThreadPoolExecutor(self.local_count) as pool:
            futures = [pool.submit(run, place) for place in range(self.local_count)]
            self._turns[0].release()
        errors = [error for future in futures if (error := future.exception())]
        if errors:
            raise next((error for error in errors if not isinstance(error, threading.BrokenBarrierError)), errors[0])
        return [future.result() for future in futures]

    def exchange(self, value: tf.Tensor) -> list[tf.Tensor]:
        """Return the values that all shards of all workers give in this call, from the first shard to the last."""
        place = self.local.place
        self._values.append(value)
        if place == self.local_count - 1:
            values = tf.stack(self._values)
            # No gradient is taken through them. TensorFlow looks for variables in all that a custom gradient needs:
            # without this, in all earlier layers of all other shards.
            values = tf.stop_gradient(self.gather(values, self._exchanges) if self.gather else values)
            self._exchanged = tf.unstack(values, self.shards)
            self._values, self._exchanges = [], self._exchanges + 1
        self._turns[(place + 1) % self.local_count].release()
        self._await_turn(place)
        return self._exchanged

    def _await_turn(self, place: int) -> None:
        self._turns[place].acquire()
        if self._failed:
            raise threading.BrokenBarrierError

    def add(self, value: tf.Tensor) -> tf.Tensor:
        """Return the sum of the values that all shards give, added from the first shard to the last."""
        return reduce(add, self.exchange(value))
