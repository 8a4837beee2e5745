import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.ops import collective_ops

from tests.makers.shards import PARTS, SIZE, configure, draw, make_step
from tests.tiers import slow
from train import data
from train.cluster import tf_config, workers
from train.errors import UsageError, WorkerError
from train.model import formulation
from train.run import shards
from train.step import training
from train.system.signals import StopSignal

ADDRESSES = ("one:1", "two:2", "three:3")


def make_group(count: int, index: int) -> workers.WorkerGroup:
    return workers.WorkerGroup(tf_config.Cluster(ADDRESSES[:count], index), StopSignal())


def read(variables: Sequence[tf.Variable]) -> list[Any]:
    return [variable.numpy() for variable in variables]


def test_shards_are_added_in_order_and_averages_merged() -> None:
    """The reference differentiates each part by itself, and adds in NumPy."""
    config = configure(loop="eager")
    images, labels, rate = draw()
    sharded, alone = make_step(config), make_step(config)
    found: list[Any] = []

    def keep(gradients: list[tf.Tensor], _: tf.Tensor) -> tf.Tensor:
        found.extend(gradient.numpy() for gradient in gradients)
        return tf.constant(True)

    sharded.update = keep
    outcome = sharded(images, labels, rate)
    start, each, results = read(alone.averages), SIZE // PARTS, []
    for part in range(PARTS):
        for average, value in zip(alone.averages, start, strict=True):
            average.assign(value)
        rows = slice(part * each, (part + 1) * each)
        loss, _, gradients = alone.differentiate(tf.constant(images[rows]), tf.constant(labels[rows]), tf.constant(0))
        results.append([*(gradient.numpy() for gradient in gradients), *read(alone.averages), loss.numpy()])

    def add(order: Sequence[int]) -> list[Any]:
        totals = []
        for values in zip(*(results[part] for part in order), strict=True):
            total = values[0]
            for value in values[1:]:
                total = total + value
            totals.append(total * np.float32(1 / PARTS))
        return totals

    expected = add(range(PARTS))
    together = [*found, *read(sharded.averages), outcome.loss.numpy()]
    assert all(np.array_equal(*pair) for pair in zip(together, expected, strict=True))
    assert not all(np.array_equal(*pair) for pair in zip(together, add([2, 1, 0]), strict=True)), "the order is seen"
    assert not np.array_equal(start[0], sharded.averages[0].numpy())


@pytest.mark.parametrize("loop", ["eager", slow("function")])
def test_rows_do_not_depend_on_the_workers_that_compute_them(loop: str) -> None:
    config, batch = configure(dropout=0.3, loop=loop), draw()
    whole = make_step(config).compute(*batch[:2]).numpy()
    each = SIZE // PARTS
    for index in range(PARTS):
        member = make_step(config, make_group(PARTS, index))
        part = slice(index * each, (index + 1) * each)
        assert np.array_equal(member.compute(batch[0][part], batch[1][part]).numpy(), whole[index : index + 1])
    same = [np.concatenate([value[:each]] * PARTS) for value in batch[:2]]
    rows = make_step(config).compute(*same).numpy()
    assert not np.array_equal(rows[0], rows[1]), "shards draw their own dropout"


@pytest.mark.parametrize("columns", [7, 9], ids=["padded", "divided"])
def test_workers_add_slices_of_all_rows_in_order(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """No worker is sent the rows of all shards."""
    own, width = 2, 3
    rows = np.random.default_rng(0).normal(size=(PARTS * own, columns)).astype(np.float32)
    sent: list[Any] = []

    def scatter(index: int, answer: Callable[..., Any]) -> Any:
        monkeypatch.setattr(collective_ops, "all_to_all_v2", lambda blocks, *_: answer(blocks))
        return make_group(PARTS, index).all_to_all(tf.constant(rows[own * index : own * (index + 1)]))

    def keep(blocks: tf.Tensor) -> tf.Tensor:
        sent.append(blocks)
        return blocks

    for index in range(PARTS):
        scatter(index, keep)
    assert {tuple(blocks.shape) for blocks in sent} == {(PARTS, own, width)}
    received = [
        scatter(index, lambda _, index=index: tf.stack([each[index] for each in sent])) for index in range(PARTS)
    ]
    assert {tuple(slices.shape) for slices in received} == {(PARTS * own, width)}
    total = np.concatenate([shards._add(slices).numpy() for slices in received])
    assert np.array_equal(total[:columns], shards._add(tf.constant(rows)).numpy())
    assert not np.array_equal(total[:columns], shards._add(tf.constant(rows[::-1])).numpy()), "the order is seen"
    assert not total[columns:].any()


@pytest.mark.parametrize("loop", ["eager", slow("function")])
def test_shards_of_one_worker_train_the_weights_of_accumulated_parts(loop: str) -> None:
    """Only running averages differ: parts move them one after the other. Shard and part drop the same values."""
    batch, divided = draw(), {"batch_size": SIZE, "loop": loop, "dropout": 0.2}
    sharded = make_step(configure(shards=4, **divided))
    config = configure(shards=1, accumulate=4, **divided)
    form, dataset = formulation.choose("stock"), data.load(config)
    state, rule = training.start(config, form)
    run = training.compile_train_step(training.make_train_step(state, rule, config, dataset.mean, dataset.std), config)
    for _ in range(2):
        first, second = sharded(*batch), run(*map(tf.constant, batch))
    assert first.read() == second.read()
    weights = [[each.value for each in one.model.trainable_variables] for one in (sharded.state, state)]
    assert all(np.array_equal(*pair) for pair in zip(*map(read, weights), strict=True))


def test_an_overflow_changes_no_weight_on_any_worker() -> None:
    config, (images, labels, rate) = configure(precision="mixed_float16", loop="eager"), draw()
    sharded = make_step(config)
    rows = sharded.compute(images, labels).numpy()
    rows[1, 0] = np.inf
    before = read(sharded.weights)
    assert not sharded.apply(tf.constant(rows), rate).finite
    assert all(np.array_equal(*pair) for pair in zip(before, read(sharded.weights), strict=True))
    assert sharded.state.loss_scale.numpy() == training.INITIAL_SCALE / 2


@pytest.mark.parametrize("options", [{}, {"mixup": 0.4, "cutout": 2}])
def test_parts_of_workers_make_up_the_batch(options: dict[str, Any]) -> None:
    config = configure(augment=True, **options)
    dataset = data.load(config)
    form = formulation.choose("stock")
    state, rule = training.start(config, form)

    def choose(group: workers.WorkerGroup | None) -> Any:
        sharded = shards.ShardedStep(state, rule, config, dataset.mean, dataset.std, form=form, group=group)
        return sharded.choose_batches(dataset).make(70)

    parts = [choose(make_group(PARTS, index)) for index in range(PARTS)]
    for place, whole in enumerate(choose(None)):
        assert np.array_equal(np.concatenate([part[place] for part in parts]), whole)


def describe(count: int, index: int, **changes: Any) -> str:
    named = {"worker": [f"host{number}:1" for number in range(count)]}
    return json.dumps({"cluster": named, "task": {"type": "worker", "index": index}} | changes)


def test_workers_are_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(tf_config.VARIABLE, describe(2, 1))
    found = tf_config.read_cluster()
    assert found is not None
    assert (found.name(1), found.is_chief, found.divide(4)) == ("worker 1 (host1:1)", False, range(2, 4))
    assert tf_config.read_cluster(describe(1, 0)) is None
    monkeypatch.delenv(tf_config.VARIABLE)
    assert tf_config.read_cluster() is None
    with pytest.raises(UsageError, match="2 workers cannot share 3 shards equally"):
        found.divide(3)


@pytest.mark.parametrize(
    "text",
    [
        "{",
        describe(2, 2),
        describe(2, 0, task={"type": "chief", "index": 0}),
        describe(2, 0, cluster={"worker": ["host"], "chief": ["host:1"]}),
        describe(2, 0, cluster={"worker": ["host:1", 2]}),
        *(describe(2, 0, cluster={"worker": ["host:1", f"host:{port}"]}) for port in ("1", "0", "65536", "http", "")),
    ],
)
def test_a_wrong_description_of_workers_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="TF_CONFIG does not name workers"):
        tf_config.read_cluster(text)


def test_digests_see_threads_of_stock_kernels_only() -> None:
    some, native = {"tensorflow": "2", "threads": 1}, {"kernels": "ab", "threads": 1}
    assert workers.digest_environment(some) != workers.digest_environment(some | {"threads": 2})
    assert workers.digest_environment(native) == workers.digest_environment(native | {"threads": 2})
    assert len(workers.digest_code()) == 64


@pytest.mark.parametrize(
    ("error", "lost", "kept"),
    [
        (tf.errors.ResourceExhaustedError, "", True),
        (tf.errors.ResourceExhaustedError, "it has ended", False),
        (tf.errors.InternalError, "it has ended", False),
        *(
            (getattr(tf.errors, f"{name}Error"), "", False)
            for name in ("Unavailable", "Aborted", "Cancelled", "DeadlineExceeded")
        ),
    ],
)
def test_only_a_lost_worker_is_called_lost(
    error: type[tf.errors.OpError], lost: str, *, kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "SILENCE", 0.0)
    group = make_group(2, 1)
    monkeypatch.setattr(group, "_ask", lambda *_: lost)
    with pytest.raises(error if kept else WorkerError), group.explaining():
        raise error(None, None, "the reason")
