"""The engine itself is killed in the middle of a build, for real: an engine of its own."""

import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration import small_engine
from tests.integration.docker import stages
from tests.integration.place import Place

pytestmark = [
    pytest.mark.engine,
    pytest.mark.timeout(290),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may have an engine of its own"),
    pytest.mark.usefixtures("bazel"),
]


@pytest.fixture
def engine() -> Iterator[small_engine.SmallEngine]:
    with tempfile.TemporaryDirectory() as folder, small_engine.start(Path(folder), gib=8) as engine:
        engine.load(stages.STANDIN, "toolkit/bazel:debian")
        yield engine


def test_killed_engine_is_named_and_leaves_no_half_wheel(engine: small_engine.SmallEngine, tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.variables |= engine.variables
    process = place.start()
    place.wait_for(process, b"/build/install-packages")
    engine.kill()
    began = time.monotonic()
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 5, errors
    assert time.monotonic() - began < 30
    assert "error: the container engine went away during the build" in errors
    assert "start it and run this again" in errors
    assert list((place.folder / "dist").iterdir()) == []

    # What was built is found again: the images, and the steps that had ended.
    engine.run()
    argv = ["docker", "image", "inspect", stages.STANDIN]
    assert subprocess.run(argv, env=os.environ | engine.variables, capture_output=True, check=False).returncode == 0
