import os
import signal
from pathlib import Path

import pytest

from tests.integration.workspace import Workspace
from tests.makers.mini_tensorflow import edit

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600), pytest.mark.usefixtures("bazel")]


def test_next_build_removes_what_a_killed_one_left(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    packer = workspace.hold_packer()
    process = workspace.start()
    workspace.wait_for(process, packer)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    left = [path.name for path in (tmp_path / "dist").iterdir()]
    assert len(left) == 1
    assert left[0].startswith(".")

    edit(workspace.source / packer.decode(), "time.sleep(600)", "time.sleep(0)")
    done = workspace.build()
    assert done.returncode == 0, done.stderr
    assert not [path.name for path in (tmp_path / "dist").iterdir() if path.name.startswith(".")]
    assert len(workspace.results) == 1
