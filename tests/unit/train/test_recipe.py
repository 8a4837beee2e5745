"""Tests the options of training beyond the paper: what they compute, and that interrupted runs keep their bits."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.native import needs_native
from tests.tiers import slow
from tests.unit.train import runs
from train.config.configuration import TrainConfig
from train.config.resolution import resolve
from train.data import load
from train.input import augmentation
from train.model import formulation
from train.model.formulation import FOR_CPU, FOR_GPU, FOR_NATIVE
from train.record import checkpoint, reader
from train.record.reader import SLOTS
from train.step import optimizer, state, training
from train.step.training import make_loss

LABELS = np.array([0, 2, 1, 2], np.int32)
LOGITS = np.random.default_rng(1).normal(size=(4, 3)).astype(np.float32)


def configure(**options: Any) -> TrainConfig:
    return resolve("digits", depth=10, batch_size=240, **options)


def cross_entropy(targets: Any) -> float:
    likelihoods = LOGITS - np.log(np.exp(LOGITS.astype(np.float64)).sum(1, keepdims=True))
    return float(-(targets * likelihoods).sum(1).mean())


FORMS = {"CPU": FOR_CPU, "GPU": FOR_GPU, "native": FOR_NATIVE}


@pytest.mark.parametrize("form", ["CPU", "GPU", pytest.param("native", marks=needs_native)])
def test_the_loss_of_smoothed_and_weighted_targets(form: str) -> None:
    one_hot, weights = np.eye(3)[LABELS], (0.5, 2.0, 1.0)
    smooth = 0.9 * one_hot + 0.1 / 3
    for config, chosen, targets in (
        (configure(), (), one_hot),
        (configure(label_smoothing=0.1), (), smooth),
        (configure(class_weights="balanced"), weights, one_hot * weights),
        (configure(label_smoothing=0.1, class_weights="balanced"), weights, smooth * weights),
    ):
        loss = make_loss(config, FORMS[form], chosen)
        assert float(loss(tf.constant(LABELS), tf.constant(LOGITS))) == pytest.approx(cross_entropy(targets), rel=1e-6)
    mixed = (0.25 * one_hot + 0.75 * one_hot[::-1]).astype(np.float32)
    loss = make_loss(configure(mixup=0.2), FORMS[form])
    assert float(loss(tf.constant(mixed), tf.constant(LOGITS))) == pytest.approx(cross_entropy(mixed), rel=1e-6)


def test_balanced_weights_make_classes_count_the_same() -> None:
    data = load(configure())
    kept = np.flatnonzero(data.train.labels < 3)
    few = replace(data, train=data.train.take(np.concatenate([kept, kept[data.train.labels[kept] == 0]])))
    weights, counts = np.array(few.balance(10)), np.bincount(few.train.labels, minlength=10)
    assert (weights * counts)[:3] == pytest.approx([len(few.train) / 3] * 3)


def move(weight: Any, **options: Any) -> list[float]:
    rule = optimizer.choose(resolve("cifar10", **options))
    variable = tf.Variable(weight)
    slots = [tf.Variable(tf.zeros_like(variable)) for _ in rule.slots]
    rule.update(variable, tf.ones_like(variable), slots, tf.constant(0.1, variable.dtype), 1)
    return [float(value) for value in variable.numpy().flat]


def test_adamw_shrinks_weights_apart_from_the_gradient() -> None:
    options = {"recipe": "adam", "weight_decay": 0.5}
    plain = move(np.full((1, 1), 2.0), recipe="adam")
    decoupled = move(np.full((1, 1), 2.0), **options, optimizer="adamw")
    assert decoupled == pytest.approx([plain[0] - 0.1 * 0.5 * 2.0])
    assert move(np.full((1, 1), 2.0), **options) == pytest.approx(plain), "Adam divides a penalty away"


def test_gradients_are_scaled_to_the_norm() -> None:
    gradients = [tf.constant([3.0, 0.0]), tf.constant([[4.0]])]
    assert [part.numpy().tolist() for part in training.clip(gradients, 10.0)] == [[3.0, 0.0], [[4.0]]]
    assert np.concatenate([part.numpy().ravel() for part in training.clip(gradients, 1.0)]) == pytest.approx(
        [0.6, 0, 0.8]
    )


def run_step(config: TrainConfig, images: Any, labels: Any) -> state.State:
    current, rule = training.start(config)
    unit = np.full(1, 8.0)
    function = training.compile_train_step(training.make_train_step(current, rule, config, unit, unit), config)
    function(tf.constant(images), tf.constant(labels), tf.constant(0.1))
    return current


@pytest.mark.parametrize("loop", [slow("function"), "eager"])
def test_parts_of_a_batch_give_the_mean_of_their_gradients(loop: Any) -> None:
    """Two equal halves have the same statistics, and so the same gradient as one half alone."""
    generator = np.random.default_rng(0)
    images, labels = generator.integers(0, 17, (8, 8, 8, 1)).astype(np.uint8), np.arange(8, dtype=np.int32)
    options: dict[str, Any] = {"depth": 10, "kernels": "stock", "loop": loop}
    half = run_step(resolve("digits", batch_size=8, **options), images, labels)
    twice = np.concatenate([images, images]), np.concatenate([labels, labels])
    whole = run_step(resolve("digits", batch_size=16, accumulate=2, **options), *twice)
    other = run_step(resolve("digits", batch_size=16, accumulate=2, **options), twice[0], twice[1][::-1])
    expected, found, wrong = (
        [variable.numpy() for variable in each.model.trainable_variables] for each in (half, whole, other)
    )
    for left, right in zip(expected, found, strict=True):
        np.testing.assert_allclose(right, left, rtol=1e-5, atol=1e-7)
    assert any(not np.allclose(left, right, atol=1e-5) for left, right in zip(expected, wrong, strict=True))


def test_averages_of_the_weights_are_what_a_run_evaluates() -> None:
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    current = state.create(model, optimizer.choose(configure()), initial_scale=1.0, ema=0.75)
    (path, kernel), *_ = state.name_weights(model).items()
    before = kernel.numpy()
    kernel.assign(before + 4)
    current.average()
    assert current.read()[path] == pytest.approx(before + 1)
    assert current.read()[f"{SLOTS}{path}/trained"] == pytest.approx(before + 4)
    with current.evaluating():
        assert kernel.numpy() == pytest.approx(before + 1)
    assert kernel.numpy() == pytest.approx(before + 4)


EVERYTHING = (*("--validation", "237", "--label-smoothing", "0.1"), *("--warm-up", "1", "--schedule", "cosine"))
EVERYTHING += ("--cutout", "3")
EVERYTHING += ("--mixup", "0.2", "--no-decay-norms", "--clip-norm", "1", "--accumulate", "2", "--ema", "0.9", "--best")
EVERYTHING += ("--class-weights", "balanced", "--dropout", "0.1", "--checkpoint-every", "2", "--randaugment", "2")
CASES = [
    slow((*EVERYTHING, "--optimizer", "adamw", "--learning-rate", "0.002")),
    slow((*EVERYTHING, "--kernels", "stock")),
    slow((*EVERYTHING, "--kernels", "stock", "--loop", "fit")),
    slow(("--validation", "237", "--patience", "1", "--best", "--learning-rate", "0.9", "--checkpoint-every", "2")),
]


@pytest.mark.usefixtures("no_drawing")
@pytest.mark.parametrize("options", CASES)
def test_a_run_goes_on_to_the_same_bits(tmp_path: Path, options: tuple[str, ...]) -> None:
    assert runs.run(tmp_path / "whole", *options) == 0
    whole = runs.find_folder(tmp_path / "whole", *options)
    record = reader.read_record(whole)
    saved = reader.read_newest_state(whole)
    assert saved
    assert reader.digest_weights(saved) == record.value["weights_sha256"]
    reader.check_epochs(record)
    resumed = runs.find_folder(tmp_path / "resumed", *options)
    shutil.copytree(whole, resumed)
    (resumed / "manifest.json").unlink()
    newest = checkpoint.newest(resumed / "checkpoints")
    assert newest
    newest.unlink()
    assert runs.run(tmp_path / "resumed", *options) == 0
    again = runs.read_manifest(tmp_path / "resumed", *options)
    assert again["resumed_after"]
    assert again["weights_sha256"] == record.value["weights_sha256"]
    assert again["result"]["test_loss"] == record.result["test_loss"]


@pytest.mark.usefixtures("no_drawing")
def test_a_run_stops_and_ends_with_its_best_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from train.run import loop

    accuracies = iter([0.5, 0.7, 0.7, 0.6, 0.6])
    evaluate = loop.evaluate

    def pretend(*arguments: Any) -> Any:
        found = evaluate(*arguments)
        return replace(found, accuracy=next(accuracies, found.accuracy)) if found else None

    monkeypatch.setattr(loop, "evaluate", pretend)
    options = ("--validation", "237", "--epochs", "9", "--patience", "2", "--best", "--keep", "9")
    assert runs.run(tmp_path, *options) == 0
    folder, manifest = runs.find_folder(tmp_path, *options), runs.read_manifest(tmp_path, *options)
    assert manifest["result"]["best_epoch"] == 2
    assert manifest["result"]["epochs"] == 4
    best = reader.read_state(folder / "checkpoints" / f"step-{2 * runs.STEPS:08d}.json")
    assert reader.digest_weights(best) == manifest["weights_sha256"]


@needs_native
def test_native_kernels_give_the_same_step() -> None:
    images = np.random.default_rng(0).integers(0, 17, (8, 8, 8, 1)).astype(np.uint8)
    targets = np.random.default_rng(1).dirichlet(np.ones(10), 8).astype(np.float32)
    found = []
    for kernels in ("stock", "native"):
        config = resolve(
            "digits", depth=10, batch_size=8, mixup=0.2, label_smoothing=0.1, clip_norm=0.5, kernels=kernels
        )
        assert formulation.choose(config.kernels).native == (kernels == "native")
        current = run_step(config, images, targets)
        found.append([variable.numpy() for variable in current.model.trainable_variables])
    for left, right in zip(*found, strict=True):
        np.testing.assert_allclose(right, left, rtol=1e-3, atol=1e-5)


def test_a_square_is_cut_out_around_its_place() -> None:
    images = np.full((3, 8, 8, 1), 7, np.uint8)
    places = np.array([[0.5, 0.5], [0.0, 0.0], [0.99, 0.25]])
    cut = augmentation.cut_out(images, places, 4, np.array([3], np.uint8))[..., 0]
    assert (images == 7).all()
    for image, rows, columns in zip(
        cut, (range(2, 6), range(2), range(5, 8)), (range(2, 6), range(2), range(4)), strict=True
    ):
        expected = np.full((8, 8), 7)
        expected[np.ix_(rows, columns)] = 3
        assert np.array_equal(image, expected)
