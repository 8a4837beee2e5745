"""A run that was interrupted in any way ends with the weights of one that was not."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.tiers import slow
from train import checkpoint, export
from train.cli import main, parse

pytestmark = pytest.mark.usefixtures("no_drawing")

EPOCHS = 4
OPTIONS = ["--depth", "10", "--checkpoint-every", "5", "--threads", "2", "--progress", "plain"]
ARGUMENTS = ["digits", "--epochs", str(EPOCHS), *OPTIONS]


def read_manifest(out: Path, *options: str) -> dict[str, Any]:
    folder = parse([*ARGUMENTS, *options, "--out", str(out)]).run_dir
    value: dict[str, Any] = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    return value


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The parent folder of a run from start to end; a test that changes it takes a copy."""
    out = tmp_path_factory.mktemp("unbroken")
    assert main([*ARGUMENTS, "--out", str(out)]) == 0
    return out


@pytest.fixture(scope="module")
def unbroken(finished: Path) -> dict[str, Any]:
    """The manifest of that run."""
    return read_manifest(finished)


def read_records(folder: Path) -> list[dict[str, Any]]:
    """What was recorded of steps and epochs, without times."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return [{name: line[name] for name in line if name not in {"seconds", "images_per_second"}} for line in lines]


def start(out: Path, *options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "train", *ARGUMENTS, *options, "--out", str(out)], stderr=subprocess.PIPE, text=True
    )


def test_the_same_seed_gives_the_same_bits(unbroken: dict[str, Any], tmp_path: Path) -> None:
    assert main([*ARGUMENTS, "--out", str(tmp_path)]) == 0
    assert read_manifest(tmp_path)["weights_sha256"] == unbroken["weights_sha256"]
    assert read_manifest(tmp_path)["result"]["test_loss"] == unbroken["result"]["test_loss"]


def test_another_seed_gives_other_bits(unbroken: dict[str, Any], tmp_path: Path) -> None:
    assert main([*ARGUMENTS, "--seed", "1", "--out", str(tmp_path)]) == 0
    assert read_manifest(tmp_path, "--seed", "1")["weights_sha256"] != unbroken["weights_sha256"]


def test_a_finished_run_is_not_repeated(
    finished: Path, unbroken: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
    capsys.readouterr()
    assert main([*ARGUMENTS, "--json", "--out", str(tmp_path)]) == 0
    assert json.loads(capsys.readouterr().out)["weights_sha256"] == unbroken["weights_sha256"]
    assert before == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}


@pytest.mark.parametrize("kills", [3, slow(20)])
def test_killed_runs_end_with_the_same_bits(tmp_path: Path, kills: int) -> None:
    """Each kill comes up to two epochs nearer the end."""
    epochs = 2 * kills
    arguments = [*ARGUMENTS, "--epochs", str(epochs)]
    assert main([*arguments, "--out", str(tmp_path / "unbroken")]) == 0
    unbroken = read_manifest(tmp_path / "unbroken", "--epochs", str(epochs))
    script = Path(__file__).with_name("killing.py")
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    done = subprocess.run(
        [sys.executable, str(script), "0", str(kills), *arguments, "--out", str(tmp_path / "killed")],
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )
    killed = int(re.findall(r"^killed (\d+)$", done.stdout, re.MULTILINE)[0])
    assert killed == kills, "some children came to the end, and proved nothing"
    manifest = read_manifest(tmp_path / "killed", "--epochs", str(epochs))
    assert manifest["weights_sha256"] == unbroken["weights_sha256"]
    assert manifest["result"]["steps"] == unbroken["result"]["steps"]
    folder = parse([*arguments, "--out", str(tmp_path / "killed")]).run_dir
    rows = (folder / "metrics.csv").read_text(encoding="utf-8").splitlines()[1:]
    assert [row.split(",")[0] for row in rows] == [str(epoch + 1) for epoch in range(epochs)]
    whole = parse([*arguments, "--out", str(tmp_path / "unbroken")]).run_dir
    assert read_records(folder) == read_records(whole)
    assert {path.name for path in (folder / "checkpoints").iterdir()} == {
        path.name for path in (whole / "checkpoints").iterdir()
    }


def test_sigterm_saves_and_exits_130(unbroken: dict[str, Any], tmp_path: Path) -> None:
    process = start(tmp_path)
    assert process.stderr
    for line in process.stderr:
        if line.startswith("epoch 1/"):
            break
    process.send_signal(signal.SIGTERM)
    began = time.monotonic()
    assert process.wait(timeout=60) == 130
    assert time.monotonic() - began < 10
    assert "the same command again goes on" in process.stderr.read()
    folder = parse([*ARGUMENTS, "--out", str(tmp_path)]).run_dir
    loaded, _ = checkpoint.load(folder / "checkpoints")
    assert loaded
    assert loaded.position.step >= 22
    assert main([*ARGUMENTS, "--out", str(tmp_path)]) == 0
    assert read_manifest(tmp_path)["weights_sha256"] == unbroken["weights_sha256"]
    assert read_manifest(tmp_path)["resumed_after"] == [loaded.position.step]
    assert unbroken["resumed_after"] == []


@pytest.mark.parametrize("damage", ["tear", "flip"])
def test_a_damaged_checkpoint_is_left_out(
    finished: Path, unbroken: dict[str, Any], tmp_path: Path, damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    folder = parse([*ARGUMENTS, "--out", str(tmp_path)]).run_dir
    (folder / "manifest.json").unlink()
    newest = checkpoint.newest(folder / "checkpoints")
    assert newest
    content = bytearray(newest.read_bytes())
    if damage == "flip":
        content[len(content) // 2] ^= 1
    newest.write_bytes(content if damage == "flip" else content[: len(content) // 2])
    capsys.readouterr()
    assert main([*ARGUMENTS, "--out", str(tmp_path)]) == 0
    said = capsys.readouterr().err
    assert f"checkpoint left out: {newest}" in said
    assert f"resumed after step {(22 * EPOCHS - 1) // 5 * 5}" in said
    assert read_manifest(tmp_path)["weights_sha256"] == unbroken["weights_sha256"]


def copy_checkpoints(source: Path, target: Path) -> None:
    shutil.copytree(source / "checkpoints", target / "checkpoints", dirs_exist_ok=True)


def test_a_checkpoint_of_another_run_is_refused_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The two differ in a number that no shape of a variable shows."""
    options = {"own": ("--steps", "10"), "other": ("--steps", "20", "--learning-rate", "0.01")}
    folders = {}
    for name, chosen in options.items():
        assert main([*ARGUMENTS, *chosen, "--out", str(tmp_path / name)]) == 0
        folders[name] = parse([*ARGUMENTS, *chosen, "--out", str(tmp_path / name)]).run_dir
    copy_checkpoints(folders["other"], folders["own"])
    (folders["own"] / "manifest.json").unlink()
    before = {path: path.read_bytes() for path in folders["own"].rglob("*") if path.is_file()}
    capsys.readouterr()
    assert main([*ARGUMENTS, *options["own"], "--out", str(tmp_path / "own")]) == 8
    said = capsys.readouterr().err
    assert f"{folders['own']}/checkpoints/step-00000020.npz is a checkpoint of another run" in said
    assert folders["other"].name[-8:] in said
    assert before == {path: path.read_bytes() for path in folders["own"].rglob("*") if path.is_file()}
    assert export.main([str(folders["own"])]) == 8
    for path in (folders["other"] / "checkpoints").iterdir():
        (folders["own"] / "checkpoints" / path.name).unlink()
    assert main([*ARGUMENTS, *options["own"], "--out", str(tmp_path / "own")]) == 0
    assert "resumed after step 10" in capsys.readouterr().err


def test_a_checkpoint_that_names_no_run_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*ARGUMENTS, "--steps", "3", "--out", str(tmp_path)]) == 0
    folder = parse([*ARGUMENTS, "--steps", "3", "--out", str(tmp_path)]).run_dir
    (folder / "manifest.json").unlink()
    loaded, _ = checkpoint.load(folder / "checkpoints")
    assert loaded
    checkpoint.save(folder / "checkpoints", loaded.values, replace(loaded.position, config_sha256=""), keep=1)
    assert main([*ARGUMENTS, "--steps", "3", "--out", str(tmp_path)]) == 8
    assert "does not say which run it belongs to" in capsys.readouterr().err


def test_a_loss_that_is_no_number_stops_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--weight-decay", "90", "--learning-rate", "90", "--schedule", "constant"]
    assert main([*ARGUMENTS, *options, "--out", str(tmp_path)]) == 7
    said = capsys.readouterr().err
    assert "the loss of step" in said
    assert "its training examples are" in said
    assert "last good checkpoint:" in said
    folder = parse([*ARGUMENTS, *options, "--out", str(tmp_path)]).run_dir
    assert not (folder / "manifest.json").exists()


def test_two_processes_do_not_share_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import fcntl

    folder = parse([*ARGUMENTS, "--out", str(tmp_path)]).run_dir
    folder.mkdir(parents=True)
    with (folder / ".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert main([*ARGUMENTS, "--out", str(tmp_path)]) == 4
    assert "another process trains" in capsys.readouterr().err
