from typing import get_args

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from train.cli import parse
from train.config.presets import read_table
from train.data.order import Purpose, count_steps, locate, permute, select, stream
from train.data.sources import load_digits
from train.input.augmentation import Augmentation, augment, draw_augmentation
from train.input.batches import Batches

seeds = st.integers(0, 2**32)


@given(seeds, st.integers(0, 1000), st.integers(1, 500), st.integers(1, 64))
def test_an_epoch_sees_every_example_at_most_once(seed: int, epoch: int, examples: int, batch: int) -> None:
    steps = count_steps(examples, batch)
    seen = np.concatenate([select(seed, epoch * steps + place, examples, batch) for place in range(steps)])
    assert len(seen) == len(set(seen.tolist())) == min(examples, steps * batch)
    assert set(seen.tolist()) <= set(range(examples))


def test_order_depends_on_seed_and_epoch_only() -> None:
    first = permute(1, 2, 100).copy()
    permute.cache_clear()
    assert np.array_equal(first, permute(1, 2, 100))
    assert not np.array_equal(first, permute(1, 3, 100))
    assert not np.array_equal(first, permute(2, 2, 100))
    assert stream(1, "order").integers(1 << 60) != stream(1, "augmentation").integers(1 << 60)


def test_the_streams_are_the_ones_of_earlier_runs() -> None:
    """The numbers are pinned: another generator would silently change every resumed run."""
    assert permute(0, 0, 10).tolist() == [9, 4, 2, 1, 0, 7, 8, 5, 3, 6]
    assert len({stream(0, purpose).integers(1 << 60) for purpose in get_args(Purpose)}) == len(get_args(Purpose))
    assert draw_augmentation(Augmentation(4, flip=True), 0, 0, 3).tolist() == [[0, 8, 1], [0, 6, 0], [7, 1, 0]]


@given(st.integers(0, 10_000), st.integers(1, 300), st.integers(1, 64))
def test_steps_are_located_in_their_epoch(step: int, examples: int, batch: int) -> None:
    epoch, place = locate(step, examples, batch)
    assert epoch * count_steps(examples, batch) + place == step


@settings(max_examples=40)
@given(seeds, st.integers(0, 4), st.booleans(), st.integers(1, 5), st.integers(4, 9))
def test_augmentation_equals_the_naive_one(seed: int, pad: int, flip: bool, count: int, size: int) -> None:
    images = stream(seed, "split").integers(0, 256, (count, size, size + 1, 3)).astype(np.uint8)
    fill = np.array([1, 2, 3], np.uint8)
    draws = draw_augmentation(Augmentation(pad, flip), seed, 0, count)
    found = augment(images, draws, pad, fill)
    for index, (row, column, mirrored) in enumerate(draws.tolist()):
        padded = np.tile(fill, (size + 2 * pad, size + 1 + 2 * pad, 1))
        padded[pad : pad + size, pad : pad + size + 1] = images[index]
        expected = padded[row : row + size, column : column + size + 1]
        assert np.array_equal(found[index], expected[:, ::-1] if mirrored else expected)


def test_plain_data_is_not_augmented() -> None:
    for options in ([], ["--no-augment"]):
        batches = Batches(load_digits(), parse(["digits", *options]))
        images, labels = batches.make(3)
        chosen = batches.dataset.train.take(batches.indices(3))
        assert np.array_equal(labels, chosen.labels)
        assert np.array_equal(images, chosen.images) == bool(options)
    assert not parse(["svhn"]).augment  # as in the paper
    kinds = {name: (facts["pad"], facts["flip"]) for name, facts in read_table("datasets").items()}
    assert kinds["cifar10"] == kinds["cifar100"] == (4, True)


def test_augmentation_of_an_example_does_not_depend_on_its_batch() -> None:
    kind = Augmentation(4, flip=True)
    draws = draw_augmentation(kind, 0, 3, 1000)
    assert draws[:, :2].max() == 8
    assert 400 < draws[:, 2].sum() < 600
    images = np.arange(1000, dtype=np.uint8).repeat(64).reshape(1000, 8, 8, 1)
    fill = np.zeros(1, np.uint8)
    together = augment(images[:50], draws[:50], 4, fill)
    assert np.array_equal(together[7], augment(images[7:8], draws[7:8], 4, fill)[0])


def test_examples_of_a_step_have_the_augmentation_of_their_numbers() -> None:
    batches = Batches(load_digits(), parse(["digits", "--augment", "--batch-size", "96"]))
    assert batches.augmentation
    chosen, draws = batches.choose(20)  # a step of the second epoch
    everyone = draw_augmentation(batches.augmentation, 0, 1, len(batches.dataset.train))
    assert np.array_equal(draws, everyone[chosen])
    assert not np.array_equal(draws, everyone[: len(chosen)])
