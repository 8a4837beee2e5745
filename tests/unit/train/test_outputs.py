import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests import loaded
from tests.tiers import slow
from tests.unit.train import runs
from train.record.metrics import Recorder, read_epochs
from train.report import plot
from train.use import compare, export

PNG = b"\x89PNG\r\n"
LONG = ("--epochs", "2", "--batch-size", "64")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs")
    assert runs.run(out, *LONG, "--profile", "10:12") == 0
    return runs.find_folder(out, *LONG)


def test_the_run_folder_holds_what_is_promised(folder: Path) -> None:
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    assert (manifest["schema"], manifest["kind"], manifest["status"]) == (1, "run", "complete")
    assert manifest["parent"] is None
    assert manifest["result"]["steps"] == 44
    assert len(manifest["weights_sha256"]) == 64
    records = read_epochs(folder / "metrics.csv")
    assert [record.epoch for record in records] == [1, 2]
    assert records[-1].test_accuracy == manifest["result"]["test_accuracy"]
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [line["step"] for line in lines] == [10, 20, 22, 30, 40, 44]
    for name in ("curves.png", "confusion.png", "model.png"):
        assert (folder / name).read_bytes().startswith(PNG)
    summary = (folder / "model.txt").read_text(encoding="utf-8")
    assert "Param #" in summary
    assert re.search(r"classifier \(\w*Dense\) .* \(None, 10\) .* 280 ", summary)  # 27 channels and a bias, ten times
    assert not list(folder.rglob(".*.*"))


def test_tensorboard_can_read_scalars_and_graph(folder: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder / "tb"), size_guidance={"tensors": 0})
    events.Reload()
    assert {"epoch/test_accuracy", "step/loss"} <= set(events.Tags()["tensors"])
    assert [event.step for event in events.Tensors("epoch/test_accuracy")] == [22, 44]
    assert events.Tags()["graph"]


def test_the_profile_marks_the_steps_that_were_asked_for(folder: Path) -> None:
    from tensorflow.tsl.profiler.protobuf.xplane_pb2 import XSpace

    (path,) = (folder / "tb").rglob("*.xplane.pb")
    found = []
    for plane in XSpace.FromString(path.read_bytes()).planes:
        names = {number: metadata.name for number, metadata in plane.stat_metadata.items()}
        markers = {number for number, metadata in plane.event_metadata.items() if metadata.name == "train"}
        for event in (event for line in plane.lines for event in line.events if event.metadata_id in markers):
            found += [stat.int64_value for stat in event.stats if names[stat.metadata_id] == "step_num"]
    assert sorted(found) == [10, 11, 12]


@pytest.mark.parametrize(
    "options",
    [
        slow(("--jit",), id="--jit"),
        slow(("--precision", "mixed_float16"), id="--precision mixed_float16"),
        slow(
            ("--precision", "mixed_bfloat16", "--memory", "recompute", "--recompute-blocks", "1,2"),
            id="half precision, recomputed",
        ),
        slow(("--dropout", "0.2", "--optimizer", "adam", "--learning-rate", "0.002"), id="adam and dropout"),
    ],
)
def test_levers_run_and_are_repeatable_to_the_bit(unbroken: str, tmp_path: Path, options: tuple[str, ...]) -> None:
    """The second run uses `fit`, in which Keras must not ignore any of the options."""
    usual, found = unbroken, []
    if "mixed_float16" in options:  # so slow on a processor that a smaller network is compared
        smaller = ("--growth", "4")
        runs.make(tmp_path / "usual", *smaller)
        usual, options = runs.read_digest(tmp_path / "usual", *smaller), options + smaller
    for loop in ("function", "fit"):
        runs.make(tmp_path / loop, *options, "--loop", loop)
        found.append(runs.read_digest(tmp_path / loop, *options, "--loop", loop))
    assert found[0] == found[1] != usual


@pytest.mark.slow
def test_nothing_is_left_in_the_folder_for_temporary_files(tmp_path: Path) -> None:
    """TensorFlow's AutoGraph writes a file for each function, and a killed process would leave these files."""
    place = tmp_path / "tmp"
    place.mkdir()
    code = """
import os, sys
from train.cli import main
for loop in ("function", "fit"):
    assert main([*sys.argv[1:], "--loop", loop]) == 0
    assert not os.listdir(os.environ["TMPDIR"])
os._exit(0)
"""
    arguments = [*runs.ARGUMENTS, "--steps", "1", "--out", str(tmp_path / "runs")]
    environment = {**os.environ, "TMPDIR": str(place)}
    subprocess.run([loaded.start(), "-c", code, *arguments], env=environment, check=True, capture_output=True)
    assert not list(place.iterdir())


def test_eager_steps_give_the_same_numbers(tmp_path: Path) -> None:
    """A graph fuses operations and so rounds otherwise than eager steps; in float64 the difference is below 1e-9."""
    options = ("--precision", "float64", "--steps", "4", "--log-every", "1")
    folders = [runs.make(tmp_path / loop, *options, "--loop", loop) for loop in ("function", "eager")]
    expected, found = ([line["loss"] for line in runs.read_lines(it) if line["kind"] == "step"] for it in folders)
    assert len(found) == 4
    assert found == pytest.approx(expected, rel=1e-9)
    assert found[-1] < found[0]


@pytest.mark.parametrize(
    "spoil",
    [lambda _: b"[1, 2]", lambda _: b"\xff\xfe\x00", lambda content: content.replace(b"growth: 12", b"growth: twelve")],
    ids=["list", "no text", "another type"],
)
def test_foreign_folders_are_refused(
    folder: Path, tmp_path: Path, spoil: Callable[[bytes], bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("config.yaml", "metrics.csv"):
        shutil.copy(folder / name, tmp_path)
    (tmp_path / "config.yaml").write_bytes(spoil((folder / "config.yaml").read_bytes()))
    for program in (plot, compare):
        assert program.main([str(tmp_path)]) == 9
        assert "is not the folder of a run" in capsys.readouterr().err


def test_unfinished_runs_are_drawn_as_far_as_they_are(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    begun = tmp_path / "begun"
    begun.mkdir()
    shutil.copy(folder / "config.yaml", begun)
    for program in (plot, compare):
        assert program.main([str(begun)]) == 9
        assert "Traceback" not in capsys.readouterr().err
    lines = (folder / "metrics.csv").read_bytes().splitlines(keepends=True)
    (begun / "metrics.csv").write_bytes(b"".join(lines[:2]) + b"2,\x00\xff,")
    assert plot.main([str(begun)]) == 0
    assert compare.main([str(begun), str(folder), "--out", str(tmp_path / "both.png")]) == 0
    assert export.main([str(begun)]) == 9
    assert "no good checkpoint" in capsys.readouterr().err


def test_runs_are_compared_by_what_they_differ_in(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other"
    shutil.copytree(folder, other)
    config = (other / "config.yaml").read_text(encoding="utf-8")
    changed = config.replace("optimizer: sgd", "optimizer: adam").replace("learning_rate: 0.2", "learning_rate: 0.002")
    (other / "config.yaml").write_text(changed, encoding="utf-8")
    capsys.readouterr()
    assert compare.main([str(folder), str(other), "--out", str(tmp_path / "both.png")]) == 0
    said = capsys.readouterr().out
    assert "optimizer adam, learning rate 0.002" in said
    assert "optimizer sgd, learning rate 0.2" in said
    assert (tmp_path / "both.png").read_bytes().startswith(PNG)
    assert compare.main([str(tmp_path / "none")]) == 2


def test_a_program_can_read_each_line_that_a_job_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of a run, of a command that finds it complete, and of one that fails."""

    def read(*options: str) -> list[dict[str, Any]]:
        runs.run(tmp_path, *LONG, "--log-format", "json", *options)
        return [json.loads(line) for line in capsys.readouterr().err.splitlines()]

    lines = read("--progress", "auto")
    assert {line["kind"] for line in lines} == {"message", "epoch"}
    assert all(datetime.fromisoformat(line["time"]).tzinfo for line in lines)
    epochs = [{name: line[name] for name in line if name not in {"time", "kind"}} for line in lines if "epoch" in line]
    assert epochs == [asdict(record) for record in read_epochs(runs.find_folder(tmp_path, *LONG) / "metrics.csv")]
    (line,) = read("--progress", "auto")
    assert "is complete; nothing to do" in line["text"]
    assert not read("--progress", "quiet")
    (line,) = read("--depth", "11")
    assert line["text"].startswith("error: ")


def test_a_run_that_goes_on_drops_the_records_of_steps_it_does_again(tmp_path: Path) -> None:
    with Recorder(tmp_path, 0) as recorder:
        for step in (1, 2, 3):
            recorder.add_step(step, loss=float(step))
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "step", "st')  # the process was killed, or the disk was full, within a line
    with Recorder(tmp_path, 2) as recorder:
        recorder.add_step(3, loss=30.0)
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").open()]
    assert [(line["step"], line["loss"]) for line in lines] == [(1, 1.0), (2, 2.0), (3, 30.0)]
