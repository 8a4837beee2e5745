import os
import subprocess
import time
from pathlib import Path

import pytest

from tests.integration.docker import stages
from tests.integration.small_engine import SmallEngine
from tests.integration.workspace import Workspace

pytestmark = [
    pytest.mark.engine,
    pytest.mark.timeout(290),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may have an engine of its own"),
]


def test_killed_engine_is_named_and_leaves_no_half_wheel(small_engine: SmallEngine, tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    workspace.variables |= small_engine.variables
    process = workspace.start()
    workspace.wait_for(process, b"/build/install-packages")
    small_engine.kill()
    began = time.monotonic()
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 5, errors
    assert time.monotonic() - began < 30
    assert "error: the container engine went away during the build" in errors
    assert "start it and run this again" in errors
    assert list((workspace.folder / "dist").iterdir()) == []

    # The images and the finished steps are still there.
    small_engine.run()
    argv, variables = ["docker", "image", "inspect", stages.STANDIN], os.environ | small_engine.variables
    assert subprocess.run(argv, env=variables, capture_output=True, check=False).returncode == 0
