import fcntl
import json
from pathlib import Path
from typing import Any

import pytest

from toolkit.base import manifest
from toolkit.records import inventory
from toolkit.records.inventory import Item

COMPLETE = {"status": "complete", "result": {"test_accuracy": 0.9972, "epochs": 20}}
HEADER = (
    "epoch,step,learning_rate,train_loss,train_accuracy,test_loss,test_accuracy,images_per_second,seconds\n"
    "7,154,0.1,0.02,0.99,0.03,0.9861,3000,4.5\n"
)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DOCKER_HOST", "unix:///nonexistent.sock")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def make_run(name: str, value: Any = None) -> Path:
    folder = Path("runs") / name
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text("dataset: digits\n")
    if value is not None:
        (folder / "manifest.json").write_text(json.dumps(value))
    return folder


def find() -> dict[str, Item]:
    return {item.name: item for item in inventory.find(Path("dist"), Path("runs"), Path(".toolkit"), None)}


def test_wheels_grafts_and_environments_are_what_their_records_say(place: Path) -> None:
    spec = {"tensorflow": "2.19.0", "cuda": "12.6.1", "capabilities": "compute_75"}
    lock = {"schema": 1, "spec": spec, "pins": {}}
    for name, facts in (("built", {}), ("grafted", {"graft": {}})):
        folder = place / "dist" / name
        folder.mkdir(parents=True)
        (folder / "a.whl").write_bytes(b"x" * 3_000_000)
        record = manifest.Manifest(kind="wheel", digest="sha256:1", facts={"lock": lock, **facts})
        manifest.write(folder, record)
    (place / "dist/unfinished").mkdir()
    environment = place / ".toolkit/environment-cpu-0123456789ab"
    environment.mkdir(parents=True)
    facts = {"python": "3.11", "requirements": "cpu"}
    manifest.write(environment, manifest.Manifest(kind="environment", digest="sha256:2", facts=facts))

    found = find()
    assert {name: item.kind for name, item in found.items()} == {
        "dist/built": "wheel",
        "dist/grafted": "graft",
        ".toolkit/environment-cpu-0123456789ab": "environment",
    }
    assert found["dist/built"].state == "TensorFlow 2.19.0, CUDA 12.6.1, compute_75"
    assert found["dist/built"].size == "3.0 MB"
    cleaned = found[".toolkit/environment-cpu-0123456789ab"]
    assert (cleaned.cleaned, cleaned.state) == (True, "Python 3.11, set cpu")
    assert not found["dist/built"].cleaned


def test_a_run_is_complete_or_stopped_or_running(place: Path) -> None:
    make_run("done", COMPLETE)
    make_run("begun")
    (make_run("stopped") / "metrics.csv").write_text(HEADER)
    running = make_run("running")
    (running / "metrics.csv").write_text(HEADER)
    (place / "runs/notes").mkdir()
    with (running / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert {name: item.state for name, item in find().items()} == {
            "runs/done": "complete: test accuracy 99.72% after 20 epochs",
            "runs/begun": "stopped: no epoch",
            "runs/stopped": "stopped: epoch 7, test accuracy 98.61%",
            "runs/running": "running: epoch 7, test accuracy 98.61%",
        }
