"""Tests of what is measured of a user's own images, and of what is said about those that cannot be read."""

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.unit.train.own.making import write_classes, write_image
from train.__main__ import start
from train.cli import main
from train.command_line import parse
from train.system.files import read_list

FAST = ("--depth", "10", "--steps", "1", "--batch-size", "4", "--threads", "2", "--progress", "quiet")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The folders of a run and of its images, which have no test split."""
    top = tmp_path_factory.mktemp("trained")
    folder = write_classes(top / "pets", count=10)
    arguments = [str(folder), *FAST, "--out", str(top / "runs"), "--cache-dir", str(top / "cache")]
    assert main(arguments) == 0
    return parse(arguments).run_dir, folder


def evaluate(capsys: pytest.CaptureFixture[str], run: Path, data: Path, *options: str) -> Any:
    arguments = ["evaluate", str(run), str(data), "--cache-dir", str(run.parent / "cache"), "--json", *options]
    assert start(arguments) == 0
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def test_all_images_of_other_data_are_measured_and_only_those_held_out_of_the_own(
    trained: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, own = trained
    other = evaluate(capsys, run, write_classes(tmp_path / "others", count=7, size=(20, 30), channels=1))
    assert other["images"] == 14
    assert "all 14 images are measured" in other["note"]
    again = evaluate(capsys, run, own)
    assert again["images"] == 4
    assert "held out" in again["note"]
    for name, count in (("train", 3), ("test", 2)):
        write_classes(tmp_path / "split" / name, count=count)
    assert evaluate(capsys, run, tmp_path / "split")["images"] == 4


def test_a_list_of_find_with_nul_is_read(
    trained: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [str(write_image(tmp_path / f"new\n{number}.png")) for number in range(2)]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("\0".join([*names, ""]).encode())))
    assert start(["predict", str(trained[0]), "-", "--json"]) == 0
    assert [each["image"] for each in json.loads(capsys.readouterr().out)["predictions"]] == names
    assert read_list(io.TextIOWrapper(io.BytesIO(b"a b\r\n\nc\x0bd\xff\n"), encoding="utf-8")) == [
        "a b",
        "c\x0bd\udcff",
    ]


def test_predict_reports_broken_images_and_what_it_leaves_out(
    trained: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, report = tmp_path / "photos", tmp_path / "broken.jsonl"
    write_image(folder / "good.png")
    for name in ("bad.png", "one.heic"):
        (folder / name).write_bytes(b"words")
    write_image(folder / "@eaDir" / "thumb.png")
    assert start(["predict", str(trained[0]), str(folder), "--report-broken", str(report)]) == 9
    said = capsys.readouterr().err
    assert ".heic: 1" in said
    assert "1 of 2 images cannot be read; the others" in said
    (line,) = map(json.loads, report.read_text(encoding="utf-8").splitlines())
    assert line["image"] == str(folder / "bad.png")
    assert start(["predict", str(trained[0]), str(folder / "bad.png")]) == 9
    assert "the others" not in capsys.readouterr().err
