"""Shards whose norms take the statistics of all of them compute what one shard computes of the whole batch."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.makers.shards import PARTS, SIZE, configure, draw, make_step
from tests.tiers import slow
from tests.unit.train import blocks
from tests.unit.train.worker_processes import DIGITS, describe, end, start, train, wait_for
from train import data
from train.command_line import parse
from train.model import formulation
from train.model.block import Mode
from train.model.lockstep import ShardSync
from train.run import shards
from train.step import training


def run_in_parts(mode: Mode, *, together: bool) -> list[Any]:
    """Return the loss, maps, statistics and gradients of two shards, put together."""
    lockstep, layers, parts = ShardSync(2, 2), blocks.make_layers(), tf.split(blocks.make_input(), 2)
    form = replace(formulation.FOR_CPU, lockstep=lockstep if together else None)
    found = lockstep.run(lambda place: blocks.run(parts[place], layers, mode, form))
    (first, *gradients), (second, *others) = (each["gradients"] for each in found)
    means = [(one + other) / 2 for one, other in zip(gradients, others, strict=True)]
    maps, losses = tf.concat([each["maps"] for each in found], 0), [each["loss"] for each in found]
    return [sum(losses) / 2, maps, found[1]["statistics"], tf.concat([first, second], 0) / 2, *means]


@pytest.mark.parametrize("mode", ["plain", "recompute", "shared"])
def test_a_block_of_shards_in_lockstep_is_that_of_the_whole_batch(mode: Mode) -> None:
    whole = blocks.run(blocks.make_input(), blocks.make_layers(), mode)
    expected = [whole["loss"], whole["maps"], whole["statistics"], *whole["gradients"]]
    assert blocks.measure_difference(run_in_parts(mode, together=True), expected) < 1e-10
    assert blocks.measure_difference(run_in_parts(mode, together=False), expected) > 0.01, "each shard by itself"


def train_both(precision: str, memory: str, steps: int, **options: Any) -> float:
    """Return the largest relative difference of a weight or running average from that of one shard."""
    one = configure(shards=1, precision=precision, memory=memory)
    form, dataset = formulation.choose("stock"), data.load(one)
    state, rule = training.start(one, form)
    run = training.compile_train_step(training.make_train_step(state, rule, one, dataset.mean, dataset.std), one)
    sharded, labels = make_step(configure(precision=precision, memory=memory, **options)), draw()[1]
    for images in np.random.default_rng(1).integers(0, 17, (steps, SIZE, 8, 8, 1)).astype(np.uint8):
        sharded(images, labels, np.float32(0.1))
        run(tf.constant(images), tf.constant(labels), tf.constant(0.1))
    return blocks.measure_difference(list(sharded.state.weights.values()), list(state.weights.values()))


@pytest.mark.slow
@pytest.mark.parametrize(("precision", "memory", "most"), [("float64", "plain", 1e-10), ("float32", "shared", 1e-5)])
def test_twenty_steps_are_those_of_one_shard(precision: str, memory: str, most: float) -> None:
    assert train_both(precision, memory, 20, sync_norm=True) < most
    assert train_both(precision, memory, 1) > 0.01, "each shard by itself"


@pytest.mark.parametrize("loop", ["eager", slow("function")])
def test_a_shard_alone_in_its_worker_has_the_bits_of_one_among_others(loop: str) -> None:
    """All shards have the same images, so that the others' values are known."""
    config, (images, labels, _) = configure(sync_norm=True, loop=loop), draw()
    each = SIZE // PARTS
    together = make_step(config).compute(*(np.concatenate([part[:each]] * PARTS) for part in (images, labels))).numpy()
    assert all(np.array_equal(row, together[0]) for row in together)
    form = replace(formulation.FOR_CPU, lockstep=ShardSync(1, PARTS, lambda value, _: tf.concat([value] * PARTS, 0)))
    state, rule = training.start(config, form)
    dataset = data.load(config)
    alone = shards.ShardedStep(state, rule, config, dataset.mean, dataset.std, form=form)
    alone.local_shards = range(1)
    assert np.array_equal(alone.compute(images[:each], labels[:each]).numpy()[0], together[0])


@pytest.mark.weekly
@pytest.mark.usefixtures("no_drawing")
def test_a_lost_worker_is_named_and_one_worker_goes_on_to_the_bits_of_two(tmp_path: Path) -> None:
    options: tuple[str, ...] = (*DIGITS, "--sync-norm", "--dropout", "0.1", "--steps", "60", "--checkpoint-every", "5")
    unbroken = train(2, *options, "--out", str(tmp_path / "unbroken"))
    options = (*options, "--out", str(tmp_path / "broken"))
    chief, other = (start(described, *options) for described in describe(2))
    try:
        wait_for(parse(options).run_dir, 5)
    finally:
        other.kill()
    ended, _ = end(chief, other)
    assert ended.code == 10, ended.output
    assert "error: worker 1 (" in ended.output, ended.output
    assert train(1, *options)["weights_sha256"] == unbroken["weights_sha256"]
