import csv
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread

from tests.unit.train import runs
from train.command_line import parse
from train.record.metrics import EpochRecord
from train.report import gallery, plot


def test_a_run_draws_its_first_images_and_its_worst_mistakes(tmp_path: Path) -> None:
    """Neither changes its weights, and TensorBoard shows both."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    options = ("--steps", "2")
    assert runs.run(tmp_path, *options) == 0
    folder, manifest = runs.find_folder(tmp_path, *options), runs.read_manifest(tmp_path, *options)
    assert list(manifest["pictures"]) == ["samples.png", "mistakes.png"]
    assert manifest["pictures"] == gallery.digest_files(folder, ("samples.png", "mistakes.png"))
    for name in manifest["pictures"]:
        assert f"({name})" in (folder / "README.md").read_text(encoding="utf-8")
        picture = imread(folder / name)[..., :3]
        assert picture.min() == 0
        for edge in (picture[:5], picture[-5:], picture[:, :5], picture[:, -5:]):
            assert edge.min() == 1.0, "white margins"
    events = EventAccumulator(str(folder / "tb"), size_guidance={"tensors": 0})
    events.Reload()
    for name, step in (("samples", 0), ("mistakes", 2)):
        assert [event.step for event in events.Tensors(name)] == [step]
    runs.make(tmp_path / "again", *options)  # with nothing drawn
    assert runs.read_digest(tmp_path / "again", *options) == manifest["weights_sha256"]


ODD = ("\ue000", "a\tb", "قطة", "猫の子", "$x^$", 'a,"b', "😀", r"$\frac$")


@pytest.mark.filterwarnings("error")
def test_names_of_any_kind_are_drawn_without_a_warning_and_read_back(tmp_path: Path) -> None:
    confusion = np.eye(len(ODD), dtype=np.int64)
    plot.write_confusion(tmp_path, confusion, ODD)
    with (tmp_path / "confusion.csv").open(encoding="utf-8", newline="") as file:
        head, *rows = csv.reader(file)
    assert head == ["true", *ODD]
    assert [row[0] for row in rows] == [*ODD]
    record = EpochRecord(
        epoch=1,
        step=1,
        learning_rate=0.1,
        train_loss=1,
        train_accuracy=0.5,
        test_loss=1,
        test_accuracy=0.5,
        images_per_second=1,
        seconds=1,
    )
    for name in ODD:
        (tmp_path / name).mkdir()
        plot.draw_records([record], parse([str(tmp_path / name)]), tmp_path / "curves.png")
    for name in ("confusion.png", "curves.png"):
        assert imread(tmp_path / name).size
