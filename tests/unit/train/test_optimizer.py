import functools
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from train.config.resolution import resolve
from train.input.batches import rate_at
from train.model.densenet import build
from train.step import optimizer, state, training

TOTAL = 400


def follow(**options: Any) -> list[float]:
    rule = optimizer.choose(resolve("cifar10", **options))
    weight = tf.Variable(np.ones(1))
    slots = [tf.Variable(np.zeros(1)) for _ in rule.slots]
    found = []
    for number in range(1, 6):
        rule.update(weight, tf.constant([0.5 * number], tf.float64), slots, tf.constant(0.1, tf.float64), number)
        found.append(float(weight.numpy()[0]))
    return found


def test_gradient_descent_is_nesterovs_with_weight_decay() -> None:
    weight, velocity, expected = 1.0, 0.0, []
    for number in range(1, 6):
        gradient = 0.5 * number + 0.01 * weight
        velocity = 0.9 * velocity + gradient
        weight -= 0.1 * (gradient + 0.9 * velocity)
        expected.append(weight)
    assert follow(recipe="paper", weight_decay=0.01) == pytest.approx(expected, rel=1e-12)
    assert follow(recipe="paper", weight_decay=0.0) != pytest.approx(expected, rel=1e-6)


def test_adam_is_algorithm_1() -> None:
    weight, first, second, expected = 1.0, 0.0, 0.0, []
    for number in range(1, 6):
        gradient = 0.5 * number
        first, second = 0.9 * first + 0.1 * gradient, 0.999 * second + 0.001 * gradient**2
        weight -= 0.1 * (first / (1 - 0.9**number)) / (np.sqrt(second / (1 - 0.999**number)) + 1e-8)
        expected.append(weight)
    assert follow(recipe="adam") == pytest.approx(expected, rel=1e-12)
    assert follow(recipe="adam", momentum=0.8) != pytest.approx(expected, rel=1e-6)


def test_the_recipe_of_the_paper() -> None:
    for dataset, epochs in (("cifar10", 300), ("cifar100", 300), ("svhn", 40)):
        config = resolve(dataset, recipe="paper")
        assert (config.optimizer, config.learning_rate, config.momentum) == ("sgd", 0.1, 0.9)
        assert (config.batch_size, config.weight_decay, config.epochs) == (64, 1e-4, epochs)
        assert (config.dropout, config.extra, config.normalize) == (
            (0.2, True, "range") if dataset == "svhn" else (0.0, False, "channels")
        )
        rates = [rate_at(config.schedule, config.learning_rate, number, TOTAL) for number in range(TOTAL)]
        assert rates == pytest.approx([0.1] * 200 + [0.01] * 100 + [0.001] * 100)


def test_other_schedules() -> None:
    cycle = [rate_at("one-cycle", 1.0, number, TOTAL) for number in range(TOTAL)]
    assert cycle.index(max(cycle)) == 120
    assert max(cycle) == 1
    assert cycle[:121] == sorted(cycle[:121])
    assert cycle[120:] == sorted(cycle[120:], reverse=True)
    cosine = [rate_at("cosine", 1.0, number, TOTAL) for number in range(TOTAL)]
    assert (cosine[0], cosine[200]) == pytest.approx((1.0, 0.5))
    assert cycle[-1] < 1e-4
    assert cosine[-1] < 1e-4
    assert {rate_at("constant", 0.3, number, TOTAL) for number in range(TOTAL)} == {0.3}


@functools.cache
def compile_step(recipe: str) -> tuple[Any, Any, dict[str, Any]]:
    config = resolve("digits", depth=10, growth=2, precision="mixed_float16", recipe=recipe)
    rule, model = optimizer.choose(config), build(config)
    current, unit = state.create(model, rule, initial_scale=1.0), np.full(1, 10.0)
    function = training.compile_train_step(training.make_train_step(current, rule, config, unit, unit), config)
    return current, function, current.read()


def make_step(scale: float, recipe: str = "quick") -> tuple[Any, Any]:
    """Return the first state of a run with a factor of the loss, and its step. All tests share the compiled step."""
    current, function, values = compile_step(recipe)
    current.write(values)
    current.loss_scale.assign(scale)
    return current, function


def call(function: Any) -> Any:
    images = tf.constant(np.random.default_rng(0).integers(0, 17, (16, 8, 8, 1)).astype(np.uint8))
    return function(images, tf.constant(np.arange(16, dtype=np.int32) % 10), tf.constant(0.1))


def test_a_step_that_overflows_changes_nothing_but_the_scale() -> None:
    current, function = make_step(2.0**24)
    before = {variable.path: variable.numpy() for variable in current.model.trainable_variables}
    assert not bool(call(function).finite)
    assert float(current.loss_scale) == 2.0**23
    for variable in current.model.trainable_variables:
        assert np.array_equal(variable.numpy(), before[variable.path])
    for slots in current.slots:
        assert not any(np.any(slot.numpy()) for slot in slots)
    current.loss_scale.assign(2.0**10)
    assert bool(call(function).finite)
    assert int(current.steady) == 1
    assert any(not np.array_equal(variable.numpy(), before[variable.path]) for variable in current.model.variables[:1])


def test_a_skipped_step_does_not_count_for_adam() -> None:
    """Adam divides by 1 - decay^count: after a skipped step, the first update must still have count 1."""
    updated = []
    for skips in (0, 1):
        current, function = make_step(2.0**24 if skips else 2.0**8, "adam")
        for _ in range(skips):
            assert not bool(call(function).finite)
        assert int(current.skipped) == skips
        current.loss_scale.assign(2.0**8)
        before = [variable.numpy() for variable in current.model.trainable_variables]
        assert bool(call(function).finite)
        after = [variable.numpy() for variable in current.model.trainable_variables]
        assert int(current.step) == skips + 1
        updated.append(np.concatenate([np.ravel(b - a) for a, b in zip(after, before, strict=True)]))
    # By Algorithm 1 the first update moves each weight by the learning rate, unless its gradient is tiny.
    assert np.median(np.abs(updated[0])) == pytest.approx(0.1, rel=0.01)
    assert updated[1] == pytest.approx(updated[0], abs=1e-6)


def test_the_scale_grows_after_steps_without_overflow() -> None:
    current, function = make_step(2.0**10)
    current.steady.assign(training.GROWTH_INTERVAL - 2)
    call(function)
    assert float(current.loss_scale) == 2.0**10
    call(function)
    assert float(current.loss_scale) == 2.0**11
    assert int(current.steady) == 0
