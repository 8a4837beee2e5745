from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import ModelCard

from tests.unit.train import runs
from train.report import card

OPTIONS = ("--checkpoint-every", "4")


@pytest.fixture
def folder(finished: Path) -> Path:
    return runs.find_folder(finished, *OPTIONS)


@pytest.fixture
def manifest(finished: Path) -> dict[str, Any]:
    return runs.read_manifest(finished, *OPTIONS)


def test_the_hub_reads_data_and_numbers_of_a_run(folder: Path, manifest: dict[str, Any]) -> None:
    read = ModelCard.load(folder / "README.md")
    assert (read.data.library_name, read.data.license, read.data.metrics) == ("keras", None, ["accuracy"])
    assert read.data.model_name == folder.name
    accuracy, loss = read.data.eval_results
    assert (accuracy.metric_type, accuracy.metric_value) == ("accuracy", manifest["result"]["test_accuracy"])
    assert (loss.metric_type, loss.metric_value) == ("loss", manifest["result"]["test_loss"])
    assert (accuracy.task_type, accuracy.dataset_name) == ("image-classification", "digits")
    for digest in (manifest["weights_sha256"], manifest["data"]["sha256"], manifest["config_sha256"]):
        assert f"`{digest}`" in read.text
    assert "toolkit predict RUN" in read.text
    assert "| checkpoint every |" not in read.text


def test_equal_runs_have_equal_cards(
    folder: Path, manifest: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """Times are in the manifest only, and a card is made again from it."""
    written = (folder / "README.md").read_bytes()
    for name in ("train_seconds", "first_step_seconds"):
        manifest["result"][name] = 12345.678
    assert card.compose(folder.name, manifest, list(card.PICTURES)).encode() == written
    assert card.main([str(folder)]) == 0
    assert (folder / "README.md").read_bytes() == written
    assert card.main([str(folder / "none")]) == 2
    assert "there is no" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("dataset", "hub"), [("cifar10", "uoft-cs/cifar10"), ("hf:someone/birds@v2", "someone/birds"), ("digits", "")]
)
def test_data_sets_have_the_names_of_the_hub(manifest: dict[str, Any], dataset: str, hub: str) -> None:
    manifest["config"] |= {"dataset": dataset, "class_names": list("0123456789"), "image_shape": [8, 8, 1]}
    read = ModelCard(card.compose("run", manifest))
    assert read.data.datasets == ([hub] if hub else None)
    assert read.data.eval_results[0].dataset_type == (hub or dataset)


def test_a_card_shows_no_path_of_this_machine_and_holds_any_name(manifest: dict[str, Any]) -> None:
    place, names = "/home/someone/birds", ["a|b", "<b>", "кошка", "鳥", *(str(number) for number in range(26))]
    manifest["config"] |= {
        "dataset": "birds",
        "data_sha256": "0" * 64,
        "data_dir": place,
        "image_shape": [8, 8, 1],
        "class_names": names,
    }
    manifest["data"] |= {"source": place, "warnings": [f"all images of {place} are the same"]}
    manifest["environment"]["class_names"] = names
    manifest["result"]["per_class_accuracy"] = [0.1, 0.2, 0.3, 0.4, *[0.5] * 25, None]
    text = card.compose("run", manifest)
    assert "/home" not in text
    assert "all images of birds are the same" in text
    for row in ("| a\\|b | 10.00% |", "| &lt;b> | 20.00% |", "| кошка | 30.00% |", "| 鳥 | 40.00% |"):
        assert row in text
    assert text.count("| 50.00% |") == card.SHOWN - 4
