import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.engine

SWEEP = """
dataset: digits
options: {depth: 10, epochs: 1, kernels: stock}
grid: {seed: [0, 1]}
"""


def test_members_run_in_containers_of_their_slots(tmp_path: Path) -> None:
    (tmp_path / "seeds.yaml").write_text(SWEEP)
    argv = [sys.executable, "-m", "toolkit", "sweep", "seeds.yaml", "--slots", "2", "--engine", "docker", "--json"]
    variables = {**os.environ, "TOOLKIT_STATE": str(tmp_path / "state")}
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("two slots need two cores")
    done = subprocess.run(argv, cwd=tmp_path, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    assert (tmp_path / shown["sweep"] / "comparison.png").read_bytes().startswith(b"\x89PNG")
    half = len(os.sched_getaffinity(0)) // 2
    for member in shown["members"]:
        run: dict[str, Any] = json.loads((tmp_path / member["run"] / "manifest.json").read_text())
        assert run["parent"]["kind"] == "image"
        assert run["environment"]["threads"] == half, "as many as its slot has cores"
        assert run["weights_sha256"] == member["weights_sha256"]
