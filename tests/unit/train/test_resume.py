import fcntl
import json
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests import loaded
from tests.tiers import slow, weekly
from tests.unit.train.runs import (
    ARGUMENTS,
    EPOCHS,
    STEPS,
    find_folder,
    make,
    read_digest,
    read_lines,
    read_manifest,
    run,
)
from train.record import checkpoint
from train.record.metrics import read_epochs
from train.use import export

pytestmark = pytest.mark.usefixtures("no_drawing")

LONG = ("--batch-size", "64", "--epochs", "6", "--checkpoint-every", "5")
"""Options of a run that is long enough to be killed: an epoch has 22 steps."""


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("long")
    make(out, *LONG)
    return out


def test_the_same_seed_gives_the_same_bits_and_another_others(finished: Path, tmp_path: Path) -> None:
    for options in ((), ("--seed", "1")):
        assert run(tmp_path, *options) == 0
    expected, found = read_manifest(finished), read_manifest(tmp_path)
    assert found["weights_sha256"] == expected["weights_sha256"]
    assert found["result"]["test_loss"] == expected["result"]["test_loss"]
    assert read_digest(tmp_path, "--seed", "1") != expected["weights_sha256"]


def test_a_finished_run_is_not_repeated(
    finished: Path, unbroken: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
    capsys.readouterr()
    assert run(tmp_path, "--json") == 0
    assert json.loads(capsys.readouterr().out)["weights_sha256"] == unbroken
    assert before == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}


@pytest.mark.parametrize("kills", [slow(3), weekly(20)])
def test_killed_runs_end_with_the_same_bits(long: Path, tmp_path: Path, kills: int) -> None:
    options, whole = (*LONG, "--epochs", str(2 * kills)), long
    if kills != 3:
        whole = tmp_path / "unbroken"
        assert run(whole, *options) == 0
    words = [loaded.start(), "-m", "tests.unit.train.killing", "0", str(kills), *ARGUMENTS, *options]
    done = subprocess.run([*words, "--out", str(tmp_path / "killed")], check=True, capture_output=True, text=True)
    assert f"killed {kills}\n" in done.stdout, "some children came to the end, and proved nothing"
    found, expected = (read_manifest(out, *options) for out in (tmp_path / "killed", whole))
    assert found["weights_sha256"] == expected["weights_sha256"]
    assert found["result"]["steps"] == expected["result"]["steps"]
    killed, unbroken = (find_folder(out, *options) for out in (tmp_path / "killed", whole))
    assert [record.epoch for record in read_epochs(killed / "metrics.csv")] == [*range(1, 2 * kills + 1)]
    assert read_lines(killed) == read_lines(unbroken)
    names = [{path.name for path in (folder / "checkpoints").iterdir()} for folder in (killed, unbroken)]
    assert names[0] == names[1]


def test_sigterm_saves_and_exits_130(long: Path, tmp_path: Path) -> None:
    words = [loaded.start(), "-m", "train", *ARGUMENTS, *LONG, "--out", str(tmp_path)]
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    assert process.stderr
    for line in process.stderr:
        if line.startswith("epoch 1/"):
            break
    process.send_signal(signal.SIGTERM)
    began = time.monotonic()
    assert process.wait(timeout=60) == 130
    assert time.monotonic() - began < 10
    assert "The same command goes on" in process.stderr.read()
    saved, _ = checkpoint.load(find_folder(tmp_path, *LONG) / "checkpoints")
    assert saved
    assert saved.position.step >= 22
    assert run(tmp_path, *LONG) == 0
    expected, found = (read_manifest(out, *LONG) for out in (long, tmp_path))
    assert found["weights_sha256"] == expected["weights_sha256"]
    assert (expected["resumed_after"], found["resumed_after"]) == ([], [saved.position.step])


def test_a_damaged_checkpoint_is_left_out(
    finished: Path, unbroken: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    folder = find_folder(tmp_path)
    (folder / "manifest.json").unlink()
    newest = checkpoint.newest(folder / "checkpoints")
    assert newest
    content = bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 1
    newest.write_bytes(content)
    capsys.readouterr()
    assert run(tmp_path) == 0
    said = capsys.readouterr().err
    assert f"checkpoint left out: {newest}" in said
    assert f"resumed after step {(STEPS * EPOCHS - 1) // 4 * 4}" in said
    assert read_digest(tmp_path) == unbroken


def test_a_checkpoint_of_another_run_is_refused_by_name(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The runs differ only in a number of steps, which changes no variable's shape."""
    options = ("--steps", "10")
    assert run(tmp_path, *options) == 0
    own, other = find_folder(tmp_path, *options), find_folder(finished)
    shutil.copytree(other / "checkpoints", own / "checkpoints", dirs_exist_ok=True)
    (own / "manifest.json").unlink()
    before = {path: path.read_bytes() for path in own.rglob("*") if path.is_file()}
    capsys.readouterr()
    assert run(tmp_path, *options) == 8
    said = capsys.readouterr().err
    assert f"{own}/checkpoints/step-00000015.npz is a checkpoint of another run" in said
    assert other.name[-8:] in said
    assert before == {path: path.read_bytes() for path in own.rglob("*") if path.is_file()}
    assert export.main([str(own)]) == 8
    for path in (other / "checkpoints").iterdir():
        (own / "checkpoints" / path.name).unlink()
    assert run(tmp_path, *options) == 0
    assert "resumed after step 10" in capsys.readouterr().err


def test_a_loss_that_is_no_number_stops_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--weight-decay", "90", "--learning-rate", "90", "--schedule", "constant", "--kernels", "stock"]
    assert run(tmp_path, *options) == 7
    said = capsys.readouterr().err
    assert "the loss of step" in said
    assert "its training examples are" in said
    assert "last good checkpoint:" in said
    folder = find_folder(tmp_path, *options)
    assert not (folder / "manifest.json").exists()


def test_two_processes_do_not_share_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = find_folder(tmp_path)
    folder.mkdir(parents=True)
    with (folder / ".lock").open("a") as lock:
        for held in (fcntl.LOCK_EX, fcntl.LOCK_SH):  # a run that shares its lock would train beside another
            fcntl.flock(lock, held)
            assert run(tmp_path) == 4
    assert "another process trains" in capsys.readouterr().err
