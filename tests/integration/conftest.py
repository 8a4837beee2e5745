import contextlib
import json
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.docker import stages
from tests.integration.workspace import Workspace
from tests.makers.mini_tensorflow import change

COMPILER = "toolkit/test:compiler"
"""A base image that has the toolchain's packages, with headers that are not patched yet."""


@pytest.fixture(scope="session")
def bazel() -> None:
    subprocess.run([stages.ROOT / "docker/base/bootstrap-bazel"], check=True)


@pytest.fixture(scope="session")
def built(bazel: None, tmp_path_factory: pytest.TempPathFactory) -> tuple[Workspace, dict[str, Any]]:
    workspace = Workspace(tmp_path_factory.mktemp("built"))
    done = workspace.build("--json")
    assert done.returncode == 0, done.stderr
    return workspace, json.loads(done.stdout)


@pytest.fixture(scope="session")
def compiler() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as empty:
        outcome = stages.build("toolchain", tag=COMPILER, contexts={"patches": empty})
    assert outcome.code == 0, outcome.text
    yield COMPILER
    subprocess.run(["docker", "image", "rm", COMPILER], capture_output=True, check=True)


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """Return a folder to build in, with sources of which no cache has results."""
    workspace = Workspace(tmp_path)
    change(workspace.source)
    return workspace


@pytest.fixture
def new_cache() -> Iterator[Callable[[], str]]:
    with contextlib.ExitStack() as stack:
        yield lambda: stack.enter_context(stages.use_cache())


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=stages.ROOT, capture_output=True, text=True, check=True)
    for name in filter(None, listed.stdout.split("\0")):
        source, target = stages.ROOT / name, tmp_path / "clone" / name
        if source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)
    return tmp_path / "clone"
