import os
import signal
from pathlib import Path

import pytest

from tests.integration.docker.test_wheel import edit
from tests.integration.place import Place

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600), pytest.mark.usefixtures("bazel")]


def test_next_build_removes_what_a_killed_one_left(tmp_path: Path) -> None:
    place = Place(tmp_path)
    packer = place.hold_packer()
    process = place.start()
    place.wait_for(process, packer)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    left = [path.name for path in (tmp_path / "dist").iterdir()]
    assert len(left) == 1
    assert left[0].startswith(".")

    edit(place.source / packer.decode(), "time.sleep(600)", "time.sleep(0)")
    done = place.build()
    assert done.returncode == 0, done.stderr
    assert not [path.name for path in (tmp_path / "dist").iterdir() if path.name.startswith(".")]
    assert len(place.results) == 1
