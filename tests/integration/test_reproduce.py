import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.unit.records import maker

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1200)]

ROOT = Path(__file__).parents[2]
OPTIONS = ("digits", "--depth", "10", "--epochs", "2", "--threads", "2")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("reproduce")


def toolkit(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    variables = {**os.environ, "TOOLKIT_STATE": str(folder / "state"), "TOOLKIT_RUNS": str(folder / "runs")}
    argv = [sys.executable, "-m", "toolkit", *arguments]
    return subprocess.run(argv, env=variables, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def run(folder: Path) -> Path:
    done = toolkit(folder, "train", *OPTIONS, "--engine", "docker")
    assert done.returncode == 0, done.stderr
    return next(folder.glob("runs/digits-*"))


def read(path: Path) -> dict[str, Any]:
    value: dict[str, Any] = json.loads((path / "manifest.json").read_text())
    return value


def find_states(done: "subprocess.CompletedProcess[str]") -> dict[str, str]:
    return {item["id"]: item["state"] for item in json.loads(done.stdout)["findings"]}


def test_run_and_image_hold(run: Path, folder: Path) -> None:
    done = toolkit(folder, "verify", str(run), "--strict", "--json")
    assert done.returncode == 0, done.stderr
    states = find_states(done)
    assert {name: state for name, state in states.items() if state != "ok"} == {"others": "skipped"}
    assert {"weights", "metrics", "parent", "image.id", "image.labels", "image.base", "image.lock"} <= states.keys()
    record = next(folder.glob("state/image-train-cpu-*"))
    for target in (read(record)["facts"]["tag"], str(record)):
        done = toolkit(folder, "verify", target, "--strict")
        assert done.returncode == 0, done.stderr
    foreign = toolkit(folder, "verify", "toolkit/base:python3.11-trixie")
    assert foreign.returncode == 0, foreign.stderr
    assert "not on this machine" in foreign.stdout


def test_the_run_gives_its_weights_again(run: Path, folder: Path) -> None:
    done = toolkit(folder, "reproduce", str(run), "--json")
    assert done.returncode == 0, done.stderr
    value = json.loads(done.stdout)
    assert value["level"] == "R4"
    assert {link["name"]: link["state"] for link in value["links"]} == {
        "weights": "same",
        "image": "same",
        "lock": "same",
        "packages": "same",
    }
    assert [path.name for path in run.parent.iterdir()] == [run.name]


@pytest.mark.weekly
def test_the_host_gives_the_weights_of_the_container(run: Path, folder: Path) -> None:
    maker.borrow_environment(folder / "state")
    done = toolkit(folder, "reproduce", str(run), "--engine", "host", "--json")
    assert done.returncode == 0, done.stderr
    value = json.loads(done.stdout)
    assert value["level"] == "R4"
    assert {link["name"]: link["state"] for link in value["links"]}["image"] == "unknown"
    assert "the same lock" in done.stderr
