import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.integration.small_engine import SmallEngine
from tests.integration.workspace import Workspace

PRUNE = "docker builder prune --filter type=regular"
"""What the message names. Without the filter it would also remove Bazel's cache mounts."""

pytestmark = [
    pytest.mark.engine,
    pytest.mark.weekly,
    pytest.mark.timeout(600),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount"),
]


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path)


def list_cache_mounts(engine: SmallEngine) -> str:
    argv = ["docker", "buildx", "du", "--verbose", "--filter", "type=exec.cachemount"]
    done = subprocess.run(argv, env={**os.environ, **engine.variables}, capture_output=True, text=True, check=True)
    return done.stdout


def test_full_disk_is_named_and_what_the_next_run_compiles_outlives_the_command_that_frees_space(
    small_engine: SmallEngine, workspace: Workspace, compiler: str
) -> None:
    small_engine.load(compiler)
    workspace.variables |= small_engine.variables
    base = ("--base-image", compiler)
    with small_engine.filled(leave_mib=100):
        done = workspace.build(*base)
    # The message says what failed, why and what to do; the exit code is the README's; `dist` has no partial result.
    assert done.returncode == 4, done.stderr
    assert re.search(r"error: .*disk (is full|filled up)", done.stderr), done.stderr
    assert "\n  why: " in done.stderr
    assert f"`{PRUNE}`" in done.stderr
    assert list((workspace.folder / "dist").iterdir()) == []
    done = workspace.build(*base)
    assert done.returncode == 0, done.stderr
    assert len(workspace.results) == 1

    # The command that frees space keeps Bazel's caches.
    assert "toolkit-bazel-" in list_cache_mounts(small_engine)
    argv = [*PRUNE.split(), "--force"]
    done = subprocess.run(argv, env=workspace.variables, capture_output=True, text=True, check=True)
    assert "Total:" in done.stdout
    assert "toolkit-bazel-" in list_cache_mounts(small_engine)
    again = workspace.build(*base, "--json", "--out", "again")
    assert again.returncode == 0, again.stderr
    actions = json.loads(again.stdout)["actions"]
    assert actions["executed"] <= 1, "nothing is compiled again"

    subprocess.run(["docker", "builder", "prune", "--force"], env=workspace.variables, capture_output=True, check=True)
    assert "toolkit-bazel-" not in list_cache_mounts(small_engine), "this is what the filter is for"
