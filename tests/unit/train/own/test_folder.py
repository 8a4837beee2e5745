import json
import os
from pathlib import Path

import numpy as np
import pytest

from tests.makers.tables import open_
from tests.unit.train.own.making import count_labels, make_image, write_classes, write_image
from train.cli import main
from train.command_line import parse
from train.data import Pictures

FAST = ("--depth", "10", "--epochs", "1", "--batch-size", "4", "--threads", "2", "--progress", "plain")


def test_a_folder_for_each_class_without_a_test_split(tmp_path: Path) -> None:
    folder = write_classes(tmp_path / "pets", ("cat", "dog", "owl"), 10)
    dataset = open_(folder)
    assert dataset.class_names == ("cat", "dog", "owl")
    assert dataset.train.images.shape == (24, 12, 12, 3)
    assert count_labels(dataset.test.labels) == {0: 2, 1: 2, 2: 2}
    rough = "one image more or less that is right changes the test accuracy by 17%"
    assert dataset.notes == (f"no test split: 6 of 30 images, 20% of each class, are held out; {rough}",)
    # The same images are held out whatever the seed, so that runs can be compared.
    again = open_(folder, "--seed", "7")
    assert np.array_equal(again.test.images, dataset.test.images)


@pytest.mark.parametrize(
    ("folders", "held"),
    [
        (("train", "test"), False),
        (("train", "val"), False),
        (("training", "validation"), False),
        (("train", "valid", "test"), True),
    ],
)
def test_folders_for_the_splits(tmp_path: Path, folders: tuple[str, ...], held: bool) -> None:
    for number, name in enumerate(folders, start=1):
        write_classes(tmp_path / "pets" / name, count=number)
    dataset = open_(tmp_path / "pets")
    assert len(dataset.train) == 2
    assert len(dataset.test) == 2 * len(folders)
    assert (dataset.validation is not None) == held
    assert not dataset.notes


@pytest.mark.parametrize(
    ("sizes", "options", "expected"),
    [
        ([(12, 12)], (), (12, 12)),
        ([(20, 12)], (), (20, 12)),
        ([(12, 12), (20, 20)], (), (224, 224)),
        ([(65, 65)], (), (224, 224)),
        ([(12, 12), (20, 20)], ("--image-size", "16"), (16, 16)),
    ],
)
def test_the_size_follows_from_the_images_or_is_given(
    tmp_path: Path, sizes: list[tuple[int, int]], options: tuple[str, ...], expected: tuple[int, int]
) -> None:
    for number, size in enumerate(sizes):
        for name in ("cat", "dog"):
            for count in range(3):
                write_image(tmp_path / "pets" / name / f"{number}-{count}.png", make_image(size))
    assert open_(tmp_path / "pets", *options).train.images.shape[1:] == (*expected, 3)


def test_a_run_is_named_by_its_images_and_not_by_their_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_classes(tmp_path / "pets")
    config = parse([str(folder)])
    monkeypatch.chdir(folder)
    assert parse(["."]).digest == config.digest
    assert parse(["."]).run_dir == config.run_dir
    folder.rename(tmp_path / "animals")
    monkeypatch.chdir(tmp_path)
    moved = parse(["./animals"])
    assert moved.digest == config.digest
    assert moved.run_dir.name == f"animals-{config.digest[:8]}"
    write_image(tmp_path / "animals" / "cat" / "more.png")
    assert parse(["./animals"]).digest != config.digest


def test_a_changed_file_is_read_again_and_others_are_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from train.config import origin

    folder, read = write_classes(tmp_path / "pets"), []
    for path in folder.rglob("*.png"):
        os.utime(path, (1, 1))
    digest = origin.digest_file
    monkeypatch.setattr(origin, "digest_file", lambda path, *_: (read.append(path), digest(path))[1])
    first = origin.digest_path(folder, tmp_path / "cache")
    assert len(read) == 10
    read.clear()
    assert origin.digest_path(folder, tmp_path / "cache") == first
    assert not read
    write_image(folder / "cat" / "0.png")
    assert origin.digest_path(folder, tmp_path / "cache") != first
    assert read == [folder / "cat" / "0.png"]


def test_a_run_on_a_folder_ends_with_a_record_of_its_classes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_classes(tmp_path / "pets", ("кот", "dog"), 10)
    arguments = [str(folder), *FAST, "--out", str(tmp_path / "runs"), "--cache-dir", str(tmp_path / "cache")]
    assert main(arguments) == 0
    said = capsys.readouterr()
    assert "no test split: 4 of 20 images" in said.err
    assert "pets: 16 to train on, 4 to test on" in said.err
    manifest = json.loads((parse(arguments).run_dir / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["environment"]["class_names"] == ["dog", "кот"]
    assert manifest["config"]["image_shape"] == [12, 12, 3]
    assert manifest["data"]["notes"]
    assert main(arguments) == 0
    assert "is complete; nothing to do" in capsys.readouterr().err
    config = parse(arguments).run_dir / "config.yaml"
    assert main(["--config", str(config), "--progress", "plain"]) == 0


def test_images_that_memory_does_not_hold_give_the_same_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from train.config.resolution import complete
    from train.input.batches import Batches

    folder = write_classes(tmp_path / "pets", count=10)
    held = open_(folder)
    monkeypatch.setattr("train.data.own.BUDGET", 0)
    read = open_(folder)
    assert isinstance(read.train.images, Pictures)
    assert np.array_equal(read.test.images[:], held.test.images)
    assert np.array_equal(read.mean, held.mean)
    config = complete(parse([str(folder), *FAST]), (12, 12, 3), held.class_names)
    for step in (0, 5):
        for one, other in zip(Batches(held, config).make(step), Batches(read, config).make(step), strict=True):
            assert np.array_equal(one, other)


def test_random_parts_follow_from_seed_epoch_and_example(tmp_path: Path) -> None:
    folder = write_classes(tmp_path / "pets", size=(80, 100), count=4)
    pictures = open_(folder, "--image-size", "72").train.images
    assert isinstance(pictures, Pictures)
    both = pictures.crop(np.array([3, 1]), 0, 2, flip=True)
    assert both.shape == (2, 72, 72, 3)
    assert np.array_equal(pictures.crop(np.array([1]), 0, 2, flip=True)[0], both[1])
    assert not np.array_equal(pictures.crop(np.array([1]), 0, 3, flip=True)[0], both[1])
    assert not np.array_equal(pictures.crop(np.array([1]), 1, 2, flip=True)[0], both[1])
