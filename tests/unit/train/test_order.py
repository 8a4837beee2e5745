import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from train.command_line import parse
from train.data.order import count_steps, permute, select, stream
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


def test_examples_of_a_step_have_the_augmentation_of_their_numbers() -> None:
    batches = Batches(load_digits(), parse(["digits", "--augment", "--batch-size", "96"]))
    assert batches.augmentation
    chosen, draws = batches.choose(20)  # a step of the second epoch
    everyone = draw_augmentation(batches.augmentation, 0, 1, len(batches.dataset.train))
    assert np.array_equal(draws, everyone[chosen])
    assert not np.array_equal(draws, everyone[: len(chosen)])
