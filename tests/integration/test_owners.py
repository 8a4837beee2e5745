"""Root calls: what jobs may read, and who owns what they leave, in containers and on the host."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.private import make_place
from toolkit.engine import Environment
from toolkit.engine.host import HostEngine, interpreter
from toolkit.jobs import training_job
from train.command_line import parse

pytestmark = [
    pytest.mark.engine,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away"),
]

ROOT = Path(__file__).parents[2]
ALICE = (4321, 4322)
SMALL = ("--epochs", "2", "--depth", "10")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("owners")


@pytest.fixture
def workspace(folder: Path) -> Path:
    return make_place(folder / f"workspace-{len(list(folder.iterdir()))}")


def give(*tops: Path) -> None:
    for top in tops:
        for path in [top, *top.rglob("*")]:
            os.chown(path, *ALICE)


def see(*tops: Path) -> list[tuple[str, int, int, int]]:
    paths = [path for top in tops for path in [top, *sorted(top.rglob("*"))]]
    return [(str(path), path.stat().st_uid, path.stat().st_gid, path.stat().st_mode) for path in paths]


def list_owners(top: Path) -> set[tuple[int, int]]:
    return {(path.lstat().st_uid, path.lstat().st_gid) for path in top.rglob("*")}


def toolkit(folder: Path, *arguments: str) -> "subprocess.Popen[str]":
    variables = {name: value for name, value in os.environ.items() if not name.startswith("TOOLKIT_")}
    variables |= {
        "TOOLKIT_STATE": str(folder / "state"),
        "TOOLKIT_DATA": str(folder / "cache"),
        "TOOLKIT_ENGINE": "docker",
    }
    argv = [sys.executable, "-m", "toolkit", *arguments]
    return subprocess.Popen(argv, cwd=ROOT, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def run(folder: Path, *arguments: str, code: int = 0) -> str:
    process = toolkit(folder, *arguments)
    said, errors = process.communicate()
    assert process.returncode == code, errors
    return said + errors


def run_on_host(folder: Path, *arguments: str) -> None:
    """Train by the engine of the host, in an environment that is that of the tests."""
    workspace = folder / "environment"
    if not workspace.exists():
        interpreter(workspace).parent.mkdir(parents=True)
        interpreter(workspace).write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
        interpreter(workspace).chmod(0o755)
    environment = Environment(kind="environment", digest="", reference=str(workspace), folder=workspace, reused=True)
    words = [*arguments, "--cache-dir", str(folder / "cache")]
    config = parse(words)
    job = training_job.plan(words, config, environment, gpu=False, display="quiet")
    assert training_job.run(HostEngine(folder / "state"), environment, job, config)["status"] == "complete"


def read_weights(out: Path) -> str:
    record = json.loads(next(out.glob("*/manifest.json")).read_text())
    assert record["status"] == "complete"
    return str(record["weights_sha256"])


def test_roots_private_folder_trains_in_docker_and_on_the_host_and_nothing_changes_its_owner(
    folder: Path, workspace: Path
) -> None:
    before = see(workspace, workspace / "data")
    (workspace / "host").mkdir(mode=0o700)
    run(folder, "train", str(workspace / "data"), *SMALL, "--out", str(workspace / "out"))
    run_on_host(folder, str(workspace / "data"), *SMALL, "--out", str(workspace / "host"))
    assert [each for each in see(workspace, workspace / "data") if each in before] == before
    assert list_owners(workspace) == {(0, 0)}
    assert read_weights(workspace / "out") == read_weights(workspace / "host")


def test_what_root_writes_in_the_folder_of_another_belongs_to_that_one(folder: Path, workspace: Path) -> None:
    (workspace / "host").mkdir(mode=0o700)
    give(workspace / "data", workspace / "out", workspace / "host")
    data, out = see(workspace / "data"), see(workspace / "out")
    run(folder, "train", str(workspace / "data"), *SMALL, "--out", str(workspace / "out" / "new" / "runs"))
    run_on_host(folder, str(workspace / "data"), *SMALL, "--out", str(workspace / "host" / "new"))
    assert see(workspace / "data") == data
    assert see(workspace / "out")[0] == out[0]
    assert list_owners(workspace) == {ALICE}
    assert (workspace.stat().st_uid, (folder / "cache").stat().st_uid) == (0, 0), "the cache is root's"


def test_using_a_run_changes_nothing_beside_what_is_written(folder: Path, workspace: Path) -> None:
    give(workspace / "data", workspace / "out")
    run(folder, "train", str(workspace / "data"), *SMALL, "--out", str(workspace / "out"))
    found = next(workspace.glob("out/*"))
    (workspace / "home").mkdir(mode=0o700)
    (workspace / "home" / "file").touch()
    for path in (workspace / "home", workspace / "home" / "file"):
        os.chown(path, *ALICE)
    (workspace / "home" / "of-root").touch()
    (workspace / "home" / "results").mkdir()
    give(workspace / "home" / "results")
    before = see(workspace / "data", found, workspace / "home")
    run(folder, "export", str(found), "--format", "keras", "--out", str(workspace / "home" / "model"))
    run(
        folder,
        "evaluate",
        str(found),
        "--data-dir",
        str(workspace / "data"),
        "--out",
        str(workspace / "home" / "results"),
    )
    said = run(
        folder, "predict", str(found), str(workspace / "data" / "dark"), "--explain", str(workspace / "home" / "seen")
    )
    assert "dark" in said
    assert set(before) <= set(see(workspace / "data", found, workspace / "home"))
    written = [path for name in ("model", "results", "seen") for path in (workspace / "home" / name).rglob("*")]
    assert {(path.stat().st_uid, path.stat().st_gid) for path in written} == {ALICE}
    assert any(path.suffix == ".keras" for path in written)
