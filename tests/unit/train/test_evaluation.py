import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.unit.train import runs
from train.__main__ import start
from train.data import Dataset, Split
from train.errors import DataError
from train.step.evaluation import compute_error, measure
from train.use import evaluation

OPTIONS = ("--checkpoint-every", "4")


@pytest.fixture
def run(finished: Path) -> Path:
    return runs.find_folder(finished, *OPTIONS)


def evaluate(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, Any]:
    assert start(["evaluate", *map(str, arguments), "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
    return found


def test_a_run_has_its_recorded_accuracy_and_loss_to_the_bit(
    finished: Path, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded = runs.read_manifest(finished, *OPTIONS)
    found = evaluate(capsys, run, "--out", tmp_path)
    assert found["accuracy"] == recorded["result"]["test_accuracy"]
    assert found["loss"] == recorded["result"]["test_loss"]
    assert [each["recall"] for each in found["classes"]] == recorded["result"]["per_class_accuracy"]
    assert found["data_sha256"] == recorded["data"]["sha256"]
    assert found["calibration_error"] == recorded["result"]["calibration_error"]
    assert found["calibration"] == recorded["result"]["calibration"]
    assert sum(images for images, _, _ in found["calibration"]) == found["images"] == 360
    assert found["note"] == ""
    assert (tmp_path / "confusion.csv").read_bytes() == (run / "confusion.csv").read_bytes()
    assert (tmp_path / "confusion.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads((tmp_path / "evaluation.json").read_text(encoding="utf-8")) == found


def test_stock_kernels_and_held_out_images_give_the_recorded_numbers_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--kernels", "stock", "--validation", "300", "--epochs", "1")
    result = runs.read_manifest(runs.make(tmp_path, *options).parent, *options)["result"]
    found = evaluate(capsys, runs.find_folder(tmp_path, *options))
    assert (found["accuracy"], found["loss"]) == (result["test_accuracy"], result["test_loss"])


def test_data_of_other_classes_is_refused(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dataset = make_dataset(["cat", "dog"], [0, 1])
    with pytest.raises(DataError, match="does not know 1 classes of a test: dog") as error:
        evaluation.match_labels(dataset, ["bird", "cat"])
    assert error.value.exit_code == 9
    assert start(["evaluate", str(run), "no-such-set"]) == 2
    assert "unknown dataset" in capsys.readouterr().err


def test_classes_are_matched_by_their_names() -> None:
    labels = evaluation.match_labels(make_dataset(["cat", "dog"], [0, 1, 1]), ["dog", "bird", "cat"])
    assert labels.tolist() == [2, 0, 0]


def make_dataset(names: list[str], labels: list[int]) -> Dataset:
    split = Split(np.zeros((len(labels), 2, 2, 1), np.uint8), np.array(labels, np.int32))
    return Dataset(split, split, tuple(names), "a test")


def measure_calibration(logits: NDArray[np.float64], labels: NDArray[Any]) -> float:
    return compute_error(measure(logits.astype(float), labels).bins)


def test_the_calibration_error_is_that_of_its_definition() -> None:
    generator = np.random.default_rng(0)
    logits, labels = generator.normal(size=(500, 4)) * 2, generator.integers(0, 4, 500).astype(np.int32)
    shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    confidence, right = shares.max(axis=1), shares.argmax(axis=1) == labels
    expected = 0.0
    for low in np.arange(15) / 15:
        inside = (confidence > low) & (confidence <= low + 1 / 15)
        if inside.any():
            expected += inside.mean() * abs(confidence[inside].mean() - right[inside].mean())
    assert measure_calibration(logits, labels) == pytest.approx(expected)
    too_sure, too_modest = 1 / (1 + np.exp(-2.0)) - 0.5, 1 - 1 / (1 + np.exp(-0.2))
    both, right = np.array([[2.0, 0.0]] * 10 + [[0.2, 0.0]] * 10), np.array([0, 1] * 5 + [0] * 10, np.int32)
    assert measure_calibration(both, right) == pytest.approx((too_sure + too_modest) / 2)
    sure = np.where(np.eye(4)[labels] > 0, 50.0, 0.0)
    assert measure_calibration(sure, labels) < 1e-9
    assert measure_calibration(sure, (labels + 1) % 4) == pytest.approx(1)


def test_precision_and_recall_are_shares_of_columns_and_rows() -> None:
    found = list(evaluation.report_classes(np.array([[3, 1, 0], [2, 4, 0], [0, 0, 0]]), ["a", "b", "c"]))
    assert [(each.images, each.precision, each.recall) for each in found] == [
        (4, 3 / 5, 3 / 4),
        (6, 4 / 5, 4 / 6),
        (0, None, None),
    ]
    many = evaluation.Report("x", "x", 6, "", 0, 0, 0, [], tuple(found), [[3, 1, 0], [2, 4, 0], [0, 0, 0]], "a note")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluation, "SHOWN", 2)
        assert evaluation.describe(many).splitlines()[-4:] == [
            "most frequent confusions of 3 classes",
            "b taken for a: 2",
            "a taken for b: 1",
            "a note",
        ]
