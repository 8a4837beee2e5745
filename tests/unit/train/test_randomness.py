from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.tiers import slow
from train.config.resolution import resolve
from train.model.densenet import list_layers
from train.model.formulation import FOR_CPU, FOR_GPU, Formulation
from train.model.randomness import make_dropout

RATES = (0.1, 0.2, 0.5)


def draw(rate: float, form: Formulation, *, seed: int = 7, batch: int = 5, place: int = 2, **options: Any) -> Any:
    variable = tf.Variable([seed, 3], dtype=tf.int64)

    def compute() -> tf.Tensor:
        maps = tf.zeros((batch, 6, 4, 3) if form.channels_first else (batch, 4, 3, 6))
        return make_dropout(rate, variable, form).at(place).derive([(1,)]).at(1).mask(maps, form)

    found = (tf.function(compute, autograph=False, **options) if options else compute)().numpy()
    return (found.transpose(0, 2, 3, 1) if form.channels_first else found) > 0


@pytest.mark.parametrize("rate", [slow(0.1), 0.2, slow(0.5)])
def test_a_mask_is_the_same_in_both_layouts_and_by_xla(rate: float) -> None:
    expected = draw(rate, FOR_CPU)
    assert 0 < expected.mean() < 1
    for form in (FOR_CPU, FOR_GPU, replace(FOR_CPU, compile_updates=True)):
        for jit in (False, True):
            np.testing.assert_array_equal(draw(rate, form, jit_compile=jit), expected)


def test_a_mask_follows_seed_and_place_and_not_the_batch() -> None:
    expected = draw(0.5, FOR_CPU)
    np.testing.assert_array_equal(draw(0.5, FOR_CPU, batch=3), expected[:3])
    assert (draw(0.5, FOR_CPU, seed=8) != expected).any()
    assert (draw(0.5, FOR_CPU, place=3) != expected).any()


def test_each_part_of_a_network_has_masks_of_its_own() -> None:
    layers = list_layers(resolve("cifar10", depth=22, augment=False, dropout=0.2), FOR_CPU)
    places = [layer.place for layer in layers if hasattr(layer, "place")]
    assert len(places) == 5, "three blocks, and two transitions"
    assert len(set(places)) == 5


@pytest.mark.parametrize("rate", RATES)
def test_a_mask_is_that_of_uniform_numbers(rate: float) -> None:
    seed = tf.constant([7, 3])
    for place in (2, 1):
        seed = tf.random.experimental.stateless_fold_in(seed, place, alg="philox")
    uniform = tf.random.stateless_uniform((5, 4, 3, 6), seed, alg="philox")
    np.testing.assert_array_equal(draw(rate, FOR_CPU), (uniform >= rate).numpy())
