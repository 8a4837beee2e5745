import io
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from sklearn import datasets

from train.__main__ import start
from train.step import evaluation
from train.use import network, prediction

DIGITS = np.rint(datasets.load_digits().images * 255 / 16).astype(np.uint8)
"""White is 255 in image files, and 16 in the data."""


@pytest.fixture
def run(learnt: Path) -> Path:
    return learnt


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("photos")
    (folder / "more").mkdir()
    digits = datasets.load_digits()
    for index in range(70):
        place = folder / "more" if index == 3 else folder
        name = f"{digits.target[index]}-{index:02d}.png"
        Image.fromarray(DIGITS[index]).save(place / name)
    (folder / "notes.txt").write_text("not an image")
    return folder


def predict(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> list[dict[str, Any]]:
    assert start(["predict", *map(str, arguments), "--json"]) == code
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["predictions"]
    return found


def test_a_folder_is_classified_as_the_model_does(run: Path, photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = predict(capsys, run, photos, "--top", "10")
    assert [each["image"] for each in found] == sorted(map(str, photos.rglob("*.png")))
    right = [each["guesses"][0]["label"] == Path(each["image"]).name[0] for each in found]
    assert sum(right) > 60
    for each in found:
        shares = [guess["probability"] for guess in each["guesses"]]
        assert sum(shares) == pytest.approx(1)
        assert shares == sorted(shares, reverse=True)
    live = network.load(run).compute_probabilities(DIGITS[:70, ..., None])
    for each in found:
        index = int(Path(each["image"]).stem[2:])
        for guess in each["guesses"]:
            assert guess["probability"] == pytest.approx(live[index, int(guess["label"])], abs=1e-5)


def test_a_list_is_read_from_standard_input(
    run: Path, photos: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{photos / '0-00.png'}\n\n{photos / 'more'}\n"))
    assert [Path(each["image"]).name for each in predict(capsys, run, "-")] == ["0-00.png", "3-03.png"]
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n"))
    assert start(["predict", str(run), "-"]) == 2
    assert "the list on standard input is empty" in capsys.readouterr().err


def test_images_that_cannot_be_read_are_named_and_the_others_classified(
    run: Path, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "broken.png").write_bytes((photos / "0-00.png").read_bytes()[:60])
    names = (tmp_path / "broken.png", photos / "0-00.png", tmp_path / "missing.png")
    broken, good, missing = predict(capsys, run, *names, code=9)
    assert "broken" in broken["problem"]
    assert "No such file" in missing["problem"]
    assert broken["guesses"] == missing["guesses"] == []
    assert good["guesses"][0]["label"] == "0"
    assert start(["predict", str(run), *map(str, names), "--top", "2"]) == 9
    said = capsys.readouterr()
    lines = said.out.splitlines()
    assert [line.split()[0] for line in lines] == [*map(str, names)]
    assert [line.count("%") for line in lines] == [0, 2, 0]
    assert "2 of 3 images cannot be read" in said.err


def test_an_explanation_is_drawn_for_each_image(
    run: Path, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    predict(capsys, run, photos / "0-00.png", photos / "more", "--explain", tmp_path / "drawn")
    drawn = sorted((tmp_path / "drawn").iterdir())
    assert [path.name for path in drawn] == ["0001-0-00.png", "0002-3-03.png"]
    with Image.open(drawn[0]) as picture:
        assert (picture.size, picture.mode) == ((224, 224), "RGB")


def test_the_heat_is_that_of_the_gradient(run: Path) -> None:
    import keras
    import tensorflow as tf

    trained = network.load(run)
    image = DIGITS[3][..., None]
    parts = keras.Model(trained.model.input, [trained.model.get_layer("scale3").output, trained.model.output])
    with tf.GradientTape() as tape:
        images = evaluation.normalize_images(
            image[None], *map(np.asarray, (trained.inputs.mean, trained.inputs.std)), "float32"
        )
        tape.watch(images)
        maps, logits = parts(images)
        score = logits[0, 3]
    weights = tf.reduce_mean(tape.gradient(score, maps), axis=(1, 2))
    expected = tf.nn.relu(tf.reduce_sum(maps * weights, axis=-1))[0].numpy()
    assert expected.max() > 0
    found = prediction.compute_heat(trained, image, 3)
    assert found == pytest.approx(expected / expected.max(), abs=1e-5)


def test_a_folder_that_is_no_run_and_a_run_without_weights_are_refused(
    run: Path, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert start(["predict", str(tmp_path), str(photos)]) == 9
    assert str(tmp_path) in capsys.readouterr().err
    copy = tmp_path / run.name
    shutil.copytree(run, copy, ignore=shutil.ignore_patterns("*.npz"))
    assert start(["predict", str(copy), str(photos)]) == 9
    assert "has no good checkpoint" in capsys.readouterr().err


def test_a_wrong_option_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert start(["predict", "run"]) == 2
    assert "IMAGE is missing" in capsys.readouterr().err
    assert start(["predict", "run", "image", "--top", "0"]) == 2
