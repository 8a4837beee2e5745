import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.image import imread

from tests.unit.train import runs
from train.command_line import parse
from train.config.resolution import resolve
from train.data import load
from train.input.batches import Batches
from train.record.metrics import EpochRecord
from train.report import gallery, plot
from train.step.evaluation import Evaluation, measure

NAMES = ("cat", "dog", "bird")


def read_tiles(monkeypatch: pytest.MonkeyPatch) -> list[tuple[gallery.Tile, ...]]:
    found: list[Any] = []
    monkeypatch.setattr(gallery, "_write", lambda folder, name, tiles, *_: found.append(tuple(tiles)))
    return found


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


@pytest.mark.parametrize("options", [{}, {"cutout": 3}, {"mixup": 0.4}])
def test_samples_are_the_images_of_the_first_step(monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]) -> None:
    config = resolve("digits", batch_size=64, **options)
    batches = Batches(load(config), config)
    found = read_tiles(monkeypatch)
    gallery.draw_samples(Path(), batches)
    images, labels = batches.make(0)
    (tiles,) = found
    assert len(tiles) == gallery.COUNT
    for tile, image, label in zip(tiles, images, labels, strict=False):
        assert (tile.image == image).all()
        texts = [text for text, _ in tile.lines]
        if "mixup" not in options:
            assert texts == [str(label)]
        else:
            assert texts[0] == f"{label.argmax()} {label.max():.0%}"
            assert len(texts) == np.count_nonzero(label)


def test_mistakes_are_those_with_the_highest_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    logits = np.zeros((100, 3))
    labels = np.zeros(100, np.int32)
    logits[:, 0] = 5
    logits[[7, 70]] = [[0, 4, 0], [0, 0, 6]]
    logits[9] = [1, 0, 0]
    evaluation: Evaluation = measure(logits, labels)
    assert [each.example for each in evaluation.worst[:4]] == [70, 7, 9, 0]
    assert evaluation.worst[0].probability == pytest.approx(np.exp(6) / (np.exp(6) + 2))
    found = read_tiles(monkeypatch)
    from train.data import Split

    images = np.arange(100, dtype=np.uint8)[:, None, None, None] * np.ones((4, 4, 1), np.uint8)
    described = gallery.draw_mistakes(Path(), Split(images, labels), evaluation, NAMES, 5)
    assert [(each["example"], each["true"], each["predicted"]) for each in described[:3]] == [
        (70, 0, 2),
        (7, 0, 1),
        (9, 0, 0),
    ]
    (tiles,) = found
    assert [int(tile.image[0, 0, 0]) for tile in tiles[:3]] == [70, 7, 9]
    assert [tile.lines for tile in tiles[:3]] == [
        (("cat", "black"), ("→ bird 100%", "tab:red")),
        (("cat", "black"), ("→ dog 96%", "tab:red")),
        (("cat", "black"), ("→ cat 58%", "tab:green")),
    ]


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


def test_wide_letters_count_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gallery, "find_fonts", lambda _: ("a font",))
    assert gallery.shorten(["鳥" * 8], 0) == "鳥" * 8
    assert gallery.shorten(["鳥" * 9], 0) == "鳥" * 7 + "…"
