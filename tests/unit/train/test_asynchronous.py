from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.makers.formulation import FOR_GPU_CHANNELS_LAST, configure, make_step, walk
from train.command_line import parse
from train.config.resolution import resolve
from train.data import Dataset, Split
from train.errors import InterruptionError
from train.input.batches import Batch, Batches, make_ahead
from train.model import formulation
from train.model.formulation import FOR_CPU, Formulation
from train.run import job
from train.step import packing, runtime, state, training
from train.system.signals import StopSignal


def compile_step(form: Formulation, **options: Any) -> tuple[state.State, training.TrainStep, Any]:
    config = replace(configure("digits", **options), layers=(1, 1))  # compiling takes most of the time
    current, function = make_step(config, form, 2.0**10 if config.precision == "mixed_float16" else 1.0)
    return current, training.compile_train_step(function, config, form=form), function


def make_batch(size: int = 8) -> Batch:
    numbers = np.random.default_rng(0)
    images = numbers.integers(0, 256, (size, 8, 8, 1)).astype(np.uint8)
    return images, (np.arange(size) % 10).astype(np.int32), np.asarray(0.05, np.float32)


@pytest.mark.parametrize("classes", [0, 10], ids=["labels", "targets"])
def test_a_batch_comes_out_of_its_parcel_as_it_went_in(classes: int) -> None:
    images, labels, rate = make_batch(5)
    if classes:
        labels = np.random.default_rng(0).random((5, classes), dtype=np.float32)
    packed = packing.pack(images, labels, rate)
    assert (packed.dtype, packed.ndim) == (np.uint8, 1)
    found = packing.unpack(tf.constant(packed), images.shape, classes=classes)
    for part, expected in zip(found, (images, labels, rate), strict=True):
        assert np.array_equal(part.numpy(), expected)


@pytest.mark.parametrize("options", [["digits"], ["cifar10"]])
def test_a_batch_made_on_the_device_is_that_of_the_host(options: list[str]) -> None:
    config = parse([*options, "--batch-size", "40"])
    numbers = np.random.default_rng(1)
    images = numbers.integers(0, 256, (130, *config.shape)).astype(np.uint8)
    split = Split(images, numbers.integers(config.classes, size=130, dtype=np.int32))
    batches = Batches(Dataset(split, split, ("a",), "random"), config)
    resident = packing.keep(batches.dataset, batches.augmentation, images.nbytes * 10)
    assert resident
    for (*given, rate), (kept, labels, same_rate), _ in zip(
        batches.iterate(0, resident=True), batches.iterate(0), range(4), strict=False
    ):
        packed = packing.pack_choice(*given, rate)
        assert packed.nbytes == 40 * 11 + 4
        found = resident.unpack(tf.constant(packed), 40)
        assert [part.dtype for part in found] == [tf.uint8, tf.int64, tf.float32]
        for part, expected in zip(found, (kept, labels, same_rate), strict=True):
            assert np.array_equal(part.numpy(), expected)


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["float64", "mixed_float16"])
def test_updates_compiled_by_xla_are_the_same(precision: str) -> None:
    (one, first, _), (other, second, _) = (
        compile_step(replace(form, compile_updates=compiled), precision=precision, optimizer="adam")
        for form, compiled in ((FOR_GPU_CHANNELS_LAST, True), (FOR_GPU_CHANNELS_LAST, False))
    )
    for _ in range(2):
        assert first(*make_batch()).read() == pytest.approx(second(*make_batch()).read(), rel=1e-3)
    found, expected = one.read(), other.read()
    tolerance = 1e-9 if precision == "float64" else 2e-2
    for name, value in expected.items():
        difference = np.linalg.norm(np.ravel(found[name] - value).astype(float))
        assert difference <= tolerance * np.linalg.norm(np.ravel(value).astype(float)), name


@pytest.mark.slow
def test_a_step_that_overflows_changes_no_weight_and_no_slot_when_compiled_either() -> None:
    current, run, _ = compile_step(FOR_GPU_CHANNELS_LAST, precision="mixed_float16")
    current.loss_scale.assign(2.0**24)
    before = current.read()
    run(*make_batch())
    after = current.read()
    assert after["skipped"] == 1
    assert after["loss_scale"] == before["loss_scale"] / 2
    averages = ("mean", "variance")
    kept = [name for name in before if not name.endswith((*averages, "step", "skipped", "loss_scale"))]
    assert all(np.array_equal(before[name], after[name]) for name in kept)


@pytest.mark.slow
def test_no_variable_is_int32() -> None:
    """XLA for GPUs has no int32 variables (tensorflow#53192), and TensorFlow keeps int32 on the host."""
    current, _, function = compile_step(FOR_GPU_CHANNELS_LAST)
    images, labels, rate = (tf.constant(part) for part in make_batch())
    graph = tf.function(function, autograph=False).get_concrete_function(images, labels, rate).graph
    variables = [*current.name_variables().values(), *graph.variables]
    assert tf.int32 not in {variable.dtype for variable in variables}
    compared = [op for op in walk(graph) if op.type in ("Equal", "NotEqual")]
    assert tf.int32 not in {op.inputs[0].dtype for op in compared if op.inputs[0].shape.rank}


def test_batches_made_ahead_are_the_same_and_their_errors_come_through() -> None:
    made: list[int] = []

    def make() -> Iterator[Any]:
        for number in range(4):
            made.append(number)
            yield number, number, number
        raise ValueError("no more")

    ahead = make_ahead(make())
    assert [next(ahead)[0] for _ in range(4)] == [0, 1, 2, 3]
    with pytest.raises(ValueError, match="no more"):
        next(ahead)
    assert made == [0, 1, 2, 3]


@pytest.mark.slow
def test_a_run_read_late_stops_and_goes_on_as_if_unbroken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_drawing: None
) -> None:
    def train(out: str) -> tuple[str, list[list[str]]]:
        if out == "stopped":
            monkeypatch.setattr(runtime, "read_device_limit", lambda: 10**9)
        monkeypatch.setattr(formulation, "choose", lambda kernels: replace(FOR_CPU, asynchronous=True))
        config = resolve("digits", depth=10, steps=7, batch_size=360, checkpoint_every=5, log_every=1, threads=2,
                         progress="quiet", out=str(tmp_path / out))  # fmt: skip
        manifest = job.run(config)
        rows = (config.run_dir / "metrics.csv").read_text(encoding="utf-8").splitlines()
        return manifest["weights_sha256"], [row.split(",")[:7] for row in rows]

    expected = train("unbroken")
    calls = 0

    def stop(_: StopSignal) -> str:
        nonlocal calls
        calls += 1
        return "SIGTERM" if calls >= 3 else ""

    monkeypatch.setattr(StopSignal, "__call__", stop)
    with pytest.raises(InterruptionError, match="after step 3 of 7"):
        train("stopped")
    monkeypatch.undo()
    assert train("stopped") == expected
