import dataclasses
import hashlib
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import tensorflow as tf

from tests import server
from tests.unit.train import keras_file, runs
from tests.unit.train.own.making import write_classes
from toolkit.engine import container
from toolkit.jobs import training_job
from train.cli import main
from train.command_line import parse
from train.config.configuration import TrainConfig
from train.config.presets import read_table
from train.config.resolution import complete
from train.errors import DataError, IntegrityError, UsageError
from train.model import formulation, pretrained
from train.model.densenet import build
from train.record import checkpoint, initial
from train.record.reader import Inputs
from train.step import evaluation
from train.step.state import assign_weights, name_weights
from train.use import export, network, portable, prediction

BOUND = 1e-5
"""Largest difference of logits, relative to the largest; 0.6e-6 to 2.2e-6 were measured."""

NAME = "densenet121_weights_tf_dim_ordering_tf_kernels_notop.h5"


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("keras") / "weights.h5"
    return keras_file.save(keras_file.make(keras_file.SMALL, 32), path)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Let DenseNet-121 have few layers; the comparisons of whole networks have it as it is."""
    if "layers" not in request.fixturenames:
        table = read_table("presets")
        monkeypatch.setitem(table, "121", {**table["121"], "layers": keras_file.SMALL})


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_classes(tmp_path / "photos", size=(40, 36))


def configure(source: Path | str, data: Path, *options: str) -> TrainConfig:
    cache = str(data.parent / "cache")
    return parse([str(data), "--image-size", "32", "--init-from", str(source), "--cache-dir", cache, *options])


def publish(source: Path, monkeypatch: pytest.MonkeyPatch, name: str = NAME, url: str = "") -> None:
    """Let Keras publish a file."""
    table = read_table("keras")
    digest = hashlib.md5(source.read_bytes(), usedforsecurity=False).hexdigest()
    monkeypatch.setitem(table, "files", {**table["files"], name: digest})
    monkeypatch.setitem(table, "url", url)


def compare(size: str, layers: list[int], side: int, kernels: Any, data: Path) -> network.Network:
    """Compare a network with that of Keras, with the same weights; returns it."""
    model, photos = keras_file.make(layers, side), keras_file.read_photos(side)
    source = keras_file.save(model, data.parent / "weights.h5")
    names = tuple(f"n{number:08}" for number in (1440764, *range(1440765, 1441763), 15075141))
    config = complete(configure(source, data, "--kernels", kernels), (side, side, 3), names)
    assert (config.model, list(config.layers), config.padding, config.classes) == (size, layers, "even", 1000)
    form, start = formulation.choose(config.kernels), initial.load_weights(config)
    trained = build(config, form)
    assert assign_weights(trained, start, names) == "all weights"
    compute = evaluation.make_evaluation_step(trained, np.array(start.mean), np.array(start.std), form=form)
    expected = keras_file.compute(model, photos)
    assert np.abs(compute(tf.constant(photos)).numpy() - expected).max() < BOUND * np.abs(expected).max()
    inputs = Inputs(names, config.shape, start.mean, start.std, 1.0)
    return network.Network(data.parent, config, checkpoint.Position(), inputs, trained, compute, form)


@pytest.mark.parametrize("side", [32, 45])
def test_outputs_of_a_small_network_are_those_of_keras(side: int, data: Path) -> None:
    live = compare("121", keras_file.SMALL, side, "stock", data)
    photos = keras_file.read_photos(side)
    expected = live.compute_probabilities(photos)
    assert export.compare("keras", np.asarray(portable.build(live)(photos)), expected, 1e-4) < 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("kernels", ["stock", "native"])
@pytest.mark.parametrize(("size", "layers"), keras_file.LAYERS.items())
def test_outputs_are_those_of_keras(size: str, layers: list[int], kernels: str, data: Path) -> None:
    compare(size, layers, 224, kernels, data)


def test_a_named_file_is_downloaded_by_its_digest(source: Path, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = source.read_bytes()
    with server.serve(GET=server.reply(200, content)) as place:
        publish(source, monkeypatch, url=f"http://{place}/")
        config = configure("keras:densenet121", data)
        assert config.needs_network
        initial.fetch_weights(config)
    kept = data.parent / "cache" / "keras" / NAME
    assert kept.read_bytes() == content
    assert initial.load_weights(config).mean == pytest.approx([123.675, 116.28, 103.53])
    kept.write_bytes(content[:-1] + b"?")
    with pytest.raises(IntegrityError, match="its digest is"):
        initial.load_weights(config)
    kept.unlink()
    with server.serve(GET=server.reply(200, content[:-1])) as place:
        monkeypatch.setitem(read_table("keras"), "url", f"http://{place}/")
        with pytest.raises(IntegrityError, match=kept.name):
            initial.fetch_weights(config)
    assert not kept.exists()


def test_a_run_that_has_begun_needs_no_download(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = dataclasses.replace(configure("keras:densenet121", data), out=str(data.parent / "runs"))
    monkeypatch.setitem(read_table("keras"), "url", "http://127.0.0.1:9/")
    with pytest.raises(DataError, match=f"(?s)cannot get.*fetch that file where .* give it by --init-from {NAME}"):
        initial.fetch_weights(config)
    (config.run_dir / "checkpoints").mkdir(parents=True)
    (config.run_dir / "checkpoints" / "step-00000001.json").touch()
    initial.fetch_weights(config)


def test_other_files_are_refused(source: Path, data: Path, tmp_path: Path) -> None:
    cut, other, changed = (tmp_path / name for name in ("cut.h5", "other.h5", "changed.h5"))
    cut.write_bytes(source.read_bytes()[:100_000])
    other.write_bytes(b"conv2_block1_1_conv")
    changed.write_bytes(source.read_bytes())
    with h5py.File(changed, "a") as file:
        names = file.attrs["layer_names"]
        file.attrs["layer_names"] = np.delete(names, [str(name) for name in names].index("conv1_bn"))
    with pytest.raises(DataError, match="does not name the layers"):
        configure(other, data)
    with pytest.raises(UsageError, match="unknown weights: 'keras:densenet264'"):
        configure("keras:densenet264", data)
    with pytest.raises(DataError, match="has a layer with 1 weights in place of 4"):
        initial.load_weights(configure(changed, data))
    with pytest.raises(DataError, match="has no weights of DenseNet-121"):
        pretrained.read(cut, "121")


def test_a_container_sees_a_file_and_may_fetch_what_is_named(source: Path, data: Path) -> None:
    arguments = [str(data), "--init-from", str(source)]
    asked = container.describe(training_job.plan(arguments, parse(arguments), None, gpu=False), image="image")
    assert (str(source), "/init", True) in asked.mounts
    assert asked.network == "none"
    arguments[-1] = "keras:densenet121"
    asked = container.describe(training_job.plan(arguments, parse(arguments), None, gpu=False), image="image")
    assert asked.argv[asked.argv.index("--init-from") + 1] == "keras:densenet121"
    assert asked.network != "none"


@pytest.mark.slow
@pytest.mark.parametrize("channels", [1, 3])
def test_a_small_set_is_trained_from_such_a_file(source: Path, tmp_path: Path, channels: int) -> None:
    data = write_classes(tmp_path / "photos", size=(70, 80), channels=channels)
    words = [str(data), "--init-from", str(source), "--image-size", "64", "--freeze", "3", "--epochs", "2"]
    words += ["--batch-size", "4", "--progress", "plain", "--cache-dir", str(tmp_path / "cache")]
    words += ["--threads", "2", "--out", str(tmp_path)]
    with runs.without_drawing():
        assert main(words) == 0
    trained = network.load(parse(words).run_dir)
    assert (trained.config.padding, trained.inputs.shape) == ("even", (64, 64, 3))
    before = pretrained.read(source, "121")
    after = {name: variable.numpy() for name, variable in name_weights(trained.model).items()}
    kept = {name for name in after if np.array_equal(after[name], before[name])}
    frozen = {
        name for name in after if name.startswith(("stem", *(f"{part}{i}/" for part in PARTS for i in (1, 2, 3))))
    }
    assert kept == frozen
    (found,) = prediction.predict(trained, [next(data.rglob("*.png"))], 2)
    assert {guess.label for guess in found.guesses} == {"cat", "dog"}
    assert export.export(trained.folder, tmp_path / "export", ["keras"])["keras"] < 1e-4


PARTS = ("block", "scale", "transition")
