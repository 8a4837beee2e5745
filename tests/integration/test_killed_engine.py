import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.docker import stages
from tests.integration.small_engine import SmallEngine, start
from tests.integration.workspace import Workspace

pytestmark = [
    pytest.mark.engine,
    pytest.mark.timeout(290),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may have an engine of its own"),
]


@pytest.fixture
def training_engine(tmp_path: Path) -> Iterator[SmallEngine]:
    """Return an engine that trains, and has no Bazel, whose image takes minutes."""
    made = Workspace(tmp_path).toolkit("build-image", "--json")
    assert made.returncode == 0, made.stderr
    # The path of a socket has 107 letters at most.
    with tempfile.TemporaryDirectory() as folder, start(Path(folder), gib=8) as engine:
        engine.load(stages.STANDIN, json.loads(made.stdout)["image"])
        yield engine


@pytest.mark.weekly
def test_an_engine_killed_during_training_is_named_with_what_is_saved(
    training_engine: SmallEngine, tmp_path: Path
) -> None:
    state = {"TOOLKIT_STATE": str(tmp_path / "state"), "PYTHONPATH": str(stages.ROOT)}
    options = ("digits", "--depth", "10", "--epochs", "50", "--checkpoint-every", "5", "--progress", "plain")
    argv = [sys.executable, "-m", "toolkit", "train", *options, "--engine", "docker"]
    variables = os.environ | training_engine.variables | state

    def train(expected: str) -> "subprocess.Popen[str]":
        process = subprocess.Popen(argv, cwd=tmp_path, env=variables, stderr=subprocess.PIPE, text=True)
        assert process.stderr
        assert any(line.startswith(expected) for line in process.stderr)
        return process

    process = train("epoch 2/")
    training_engine.kill()
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 5, errors
    assert errors.count("error:") == 1
    assert "the container engine went away while the job" in errors
    assert "saved up to the last checkpoint" in errors
    assert "Traceback" not in errors

    training_engine.run()
    process = train("resumed after step")
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
