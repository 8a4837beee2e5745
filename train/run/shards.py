"""Runs a step as shards: equal parts of a batch, each differentiated by itself, whose results are added in order.

One worker runs all shards one after the other; several workers share them. Each shard is a call of the same graph, and
its results are one row. Rows are added from the first shard to the last, so the bits do not depend on the number of
workers. The usual all-reduce, a sum that the workers build up together, would depend on it.

Each worker adds a slice of the columns of all rows, and then the slices of the sum are gathered. So no worker needs the
rows of all shards. With ``--sync-norm``, the shards of a worker run side by side in one graph, see
``train.model.lockstep``.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from train.cluster.workers import FREE, WorkerGroup
from train.config.configuration import TrainConfig
from train.data import Dataset
from train.errors import CheckError, PreflightError, ToolkitError, UsageError
from train.input.batches import Batches
from train.model import formulation
from train.model.formulation import Formulation
from train.model.lockstep import ShardSync
from train.record.checkpoint import Values
from train.record.reader import SLOTS
from train.step.optimizer import Rule
from train.step.state import State, digest
from train.step.training import Outcome, make_differentiate, make_update, start
from train.system.signals import StopSignal

STEP, COMPARE, END = 0, 1, 1000
"""Orders of the chief: a step, a comparison of weights, or the end, to which its exit code is added."""


class ShardedStep:
    """A training step over shards. A call takes the images and labels of this worker's shards, and the rate."""

    def __init__(
        self,
        state: State,
        rule: Rule,
        config: TrainConfig,
        mean: NDArray[np.float64],
        std: NDArray[np.float64],
        *,
        form: Formulation,
        class_weights: Sequence[float] = (),
        group: WorkerGroup | None = None,
    ) -> None:
        self.state, self.rule, self.config, self.group = state, rule, config, group
        self.local_shards = group.cluster.divide(config.shards) if group else range(config.shards)
        self.weights = [variable.value for variable in state.model.trainable_variables]
        # Frozen layers are left out: their variables that are not trained include their weights.
        self.averages = [
            variable.value
            for layer in state.model.layers
            if layer.trainable
            and not form.lockstep  # in lockstep all shards have the same averages, and one of them updates these
            for variable in layer.non_trainable_variables
        ]
        self.columns = sum(int(variable.shape.num_elements()) for variable in [*self.weights, *self.averages]) + 2
        self.differentiate = make_differentiate(state, config, mean, std, form=form, class_weights=class_weights)
        self.update = make_update(state, rule, config, form)
        wrap: Callable[..., Any] = (lambda run: run) if config.loop == "eager" else tf.function(autograph=False)
        self.lockstep = form.lockstep
        self._add, self._apply = wrap(_add), wrap(self._apply)  # type: ignore[method-assign]
        if self.lockstep:
            self._run_together = wrap(self._run_together)  # type: ignore[method-assign]
        else:
            self._run_shard = wrap(self._run_shard)  # type: ignore[method-assign]

    def choose_batches(self, dataset: Dataset) -> Batches:
        """Return the batches with the examples of this worker's shards. Raises a UsageError."""
        batches, shards = Batches(dataset, self.config), self.config.shards
        if batches.size % shards:
            raise UsageError(f"--shards {shards} does not divide the batch of {batches.size} images")
        shard_size = batches.size // shards
        return replace(batches, rows=slice(shard_size * self.local_shards.start, shard_size * self.local_shards.stop))

    def __call__(self, images: Any, labels: Any, rate: Any) -> Outcome:
        # In lockstep, a worker cannot compute without the others, so they get the order first.
        if self.lockstep:
            self._order(STEP)
        rows = self.compute(images, labels)
        if not self.lockstep:
            self._order(STEP)
        return self.apply(rows, rate)

    def compute(self, images: Any, labels: Any) -> tf.Tensor:
        """Return one row for each of this worker's shards. In lockstep, it also updates the running averages."""
        if self.lockstep:
            with _keeping_graphs(), self.group.explaining() if self.group else nullcontext():
                return self._run_together(tf.constant(images), tf.constant(labels))
        size, first = len(images) // len(self.local_shards), self.local_shards.start
        return tf.stack(
            [
                self._run_shard(
                    tf.constant(images[size * (shard - first) : size * (shard - first + 1)]),
                    tf.constant(labels[size * (shard - first) : size * (shard - first + 1)]),
                    tf.constant(shard, tf.int64),
                )
                for shard in self.local_shards
            ]
        )

    def apply(self, rows: tf.Tensor, rate: Any) -> Outcome:
        """Update the state by the rows of all shards. ``rows``: those of this worker."""
        outcome: Outcome = self._apply(self.add(rows), tf.constant(rate))
        return outcome

    def add(self, rows: tf.Tensor) -> tf.Tensor:
        """Return the sum of the rows of all shards. ``rows``: those of this worker."""
        if not self.group:
            return self._add(rows)
        return self.group.all_gather(self._add(self.group.all_to_all(rows)))[: self.columns]

    def _run_together(self, images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        assert self.lockstep  # noqa: S101 - for the type checker
        size, first = images.shape[0] // len(self.local_shards), self.local_shards.start

        def run(place: int) -> tf.Tensor:
            part = slice(size * place, size * (place + 1))
            return self._run_shard(images[part], labels[part], tf.constant(first + place, tf.int64))

        return tf.stack(self.lockstep.run(run))

    def _run_shard(self, images: tf.Tensor, labels: tf.Tensor, shard: tf.Tensor) -> tf.Tensor:
        before = [average.read_value() for average in self.averages]
        number = (self.state.step.read_value() + 1) * self.config.shards + shard
        loss, correct, gradients = self.differentiate(images, labels, number)
        after = [average.read_value() for average in self.averages]
        for average, value in zip(self.averages, before, strict=True):
            average.assign(value)  # each shard begins with the averages of the last step
        dtype = self.weights[0].dtype
        return tf.concat([tf.reshape(tf.cast(part, dtype), [-1]) for part in (*gradients, *after, loss, correct)], 0)

    def _apply(self, total: tf.Tensor, rate: tf.Tensor) -> Outcome:
        self.state.step.assign_add(1)
        mean = total * tf.constant(1 / self.config.shards, total.dtype)
        variables = [*self.weights, *self.averages]
        flat = tf.split(mean[:-2], [variable.shape.num_elements() for variable in variables])
        parts = [tf.reshape(part, variable.shape) for part, variable in zip(flat, variables, strict=True)]
        gradients, averages = parts[: len(self.weights)], parts[len(self.weights) :]
        for average, value in zip(self.averages, averages, strict=True):
            average.assign(value)
        finite = self.update(gradients, rate)
        return Outcome(mean[-2], tf.cast(total[-1], tf.int64), finite)

    def compare(self, values: Values, step: int) -> None:
        """Compare the values with those of the other workers. Raises a CheckError that names a worker."""
        self._order(COMPARE)
        if self.group:
            self.group.require_equal_weights(digest_values(values), step)

    def end(self, code: int) -> None:
        """Tell the other workers that the run ends with an exit code."""
        if self.group:
            self.group.all_gather_number(END + code)

    def _order(self, order: int) -> None:
        if self.group:
            self.group.relay_signal(self.group.all_gather_number(order))


def _add(rows: tf.Tensor) -> tf.Tensor:
    first, *rest = tf.unstack(rows)
    return sum(rest, first)


@contextmanager
def _keeping_graphs() -> Iterator[None]:
    """Run graphs as they are made. TensorFlow rewrites equal shards of a graph in ways that depend on their number."""
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    try:
        yield
    finally:
        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": False})


def prepare(config: TrainConfig, dataset: Dataset, group: WorkerGroup | None) -> ShardedStep:
    """Make the initial network, and the step with the shards of this worker."""
    form = choose_form(config, group)
    state, rule = start(config, form)
    weights = dataset.balance(config.classes) if config.class_weights == "balanced" else ()
    return ShardedStep(state, rule, config, dataset.mean, dataset.std, form=form, class_weights=weights, group=group)


def choose_form(config: TrainConfig, group: WorkerGroup | None) -> Formulation:
    """Choose the operations of a sharded step: with ``--sync-norm`` shards in lockstep. Raises a PreflightError."""
    form = formulation.choose(config.kernels)
    if not config.sync_norm:
        return form
    if form.channels_first:
        raise PreflightError(
            "--sync-norm does not work on GPUs",
            why="it has been made for processors, and has never been run on a GPU",
            remedy="hide the GPUs by CUDA_VISIBLE_DEVICES=-1, or leave --sync-norm out",
        )
    local_count = len(group.cluster.divide(config.shards)) if group else config.shards
    gather = (lambda value, number: group.gather_in_graph(value, FREE + number)) if group else None
    return replace(form, lockstep=ShardSync(local_count, config.shards, gather))


def digest_values(values: Values) -> str:
    """Return the digest of the values that every worker has. Only the chief keeps the weights of the best epoch."""
    return digest((name, value) for name, value in values.items() if not (name.startswith(SLOTS) and "/best" in name))


def serve_chief(step: ShardedStep, dataset: Dataset, done: int, stop: StopSignal) -> None:
    """Run the steps after the first `done` ones as a worker that is not the chief, until the chief ends the run.

    Raises an InterruptionError if the run was stopped, and another ToolkitError if it failed.
    """
    group = step.group
    assert group is not None  # noqa: S101 - for the type checker: only a worker follows
    for batch in itertools.chain(step.choose_batches(dataset).iterate(done), itertools.repeat(None)):
        # In lockstep, the chief gives the order before it computes.
        rows = step.compute(*batch[:2]) if batch and not step.lockstep else None
        stop.begin_saving()  # before the chief, which a worker that ends by itself would stop without a checkpoint
        order, *_ = group.all_gather_number(stop.number)
        while order == COMPARE:
            group.require_equal_weights(digest_values(step.state.read()), done)
            order, *_ = group.all_gather_number(stop.number)
        if order >= END:
            return _end(order - END, done)
        assert batch is not None  # noqa: S101 - the chief has as many steps
        step.apply(step.compute(*batch[:2]) if rows is None else rows, batch[2])
        done += 1
    return None


def _end(code: int, done: int) -> None:
    if code:
        kinds: list[type[ToolkitError]] = ToolkitError.__subclasses__()
        kind = next((kind for kind in kinds if vars(kind).get("exit_code") == code), CheckError)
        raise kind(f"the chief ended the run after step {done}", why="its own message says the reason")
