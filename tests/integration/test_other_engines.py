"""Runs the job on digits and on private images by rootless engines, by Podman, and by one that maps users."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration import other_engines
from tests.integration.docker import stages
from tests.integration.other_engines import Engine, User
from tests.integration.private import make_place

pytestmark = [
    pytest.mark.engine,
    pytest.mark.weekly,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may make users and start engines"),
]

SMALL = ("--epochs", "2", "--depth", "10")
SAID = {
    "rootless-docker": "rootless: jobs read and write as toolkit-test",
    "rootless-podman": "rootless: jobs read and write as toolkit-test",
    "podman": "rootful: ",
    "mapped": "it maps users",
}


@pytest.fixture(scope="module")
def user() -> Iterator[User]:
    missing = [name for name in other_engines.PROGRAMS if not shutil.which(name)]
    if missing and os.environ.get("TOOLKIT_REQUIRE_ENGINES"):
        pytest.fail(f"TOOLKIT_REQUIRE_ENGINES is set and there is no {', '.join(missing)}")
    if missing:
        pytest.skip(f"there is no {', '.join(missing)}")
    with other_engines.make_user() as made:
        yield made


@pytest.fixture(scope="module")
def image() -> str:
    argv = [sys.executable, "-m", "toolkit", "build-image", "--json"]
    done = subprocess.run(argv, cwd=stages.ROOT, capture_output=True, text=True, check=True)
    return str(json.loads(done.stdout)["image"])


@pytest.fixture(scope="module", params=other_engines.KINDS)
def engine(request: pytest.FixtureRequest, user: User, image: str) -> Iterator[Engine]:
    with other_engines.start(request.param, user) as started:
        started.load(stages.STANDIN, image)
        yield started


@pytest.fixture(scope="module")
def workspace(engine: Engine, user: User, request: pytest.FixtureRequest) -> Path:
    """Return a folder of the caller with private images in ``data`` and a private, empty folder ``out``."""
    top = make_place(user.home / f"workspace-{len(list(user.home.iterdir()))}")
    top.chmod(0o700)
    if engine.user:
        user.own(top)
    return top


def kind_of(request: pytest.FixtureRequest) -> str:
    return str(request.node.callspec.params["engine"])


def test_doctor_says_which_kind_it_is(engine: Engine, workspace: Path, request: pytest.FixtureRequest) -> None:
    done = engine.toolkit(workspace, "doctor", "--offline", "--json")
    found = {item["id"]: item for item in json.loads(done.stdout)["findings"]}
    assert found["engine"]["state"] == "ok"
    assert found["users"]["evidence"].startswith(SAID[kind_of(request)])


def test_private_images_train_and_all_belongs_to_the_caller(engine: Engine, workspace: Path) -> None:
    before = [(path, path.stat().st_mode) for path in [workspace / "out", *(workspace / "data").rglob("*")]]
    done = engine.toolkit(workspace, "train", str(workspace / "data"), *SMALL, "--out", str(workspace / "out"))
    assert done.returncode == 0, done.stderr
    assert json.loads(next(workspace.glob("out/*/manifest.json")).read_text())["status"] == "complete"
    assert [(path, path.stat().st_mode) for path, _ in before] == before
    assert {path.stat().st_uid for path in [workspace, *workspace.rglob("*")]} == {workspace.stat().st_uid}


def test_the_chain_runs_on_digits(engine: Engine, workspace: Path) -> None:
    done = engine.toolkit(workspace, "up", "digits", *SMALL, "--out", str(workspace / "runs"))
    assert done.returncode == 0, done.stderr
    assert "image    reused" in done.stderr
    assert "0 failed" in done.stderr
    assert {path.stat().st_uid for path in workspace.rglob("*")} == {workspace.stat().st_uid}


def test_a_run_is_used(engine: Engine, workspace: Path) -> None:
    found = next(workspace.glob("out/*"))
    done = engine.toolkit(workspace, "export", str(found), "--format", "keras", "--out", str(workspace / "model"))
    assert done.returncode == 0, done.stderr
    assert {path.stat().st_uid for path in workspace.rglob("*")} == {workspace.stat().st_uid}
