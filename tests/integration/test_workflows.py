import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.integration.workspace import CACHE, Workspace

pytestmark = pytest.mark.engine

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_action_builds_a_wheel(bazel: None, workspace: Workspace) -> None:
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    (step,) = [each for each in action["runs"]["steps"] if each.get("id") == "wheel"]
    folder = workspace.folder
    (folder / "toolkit").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m toolkit "$@"\n')
    (folder / "toolkit").chmod(0o755)
    arguments = ["--source", str(workspace.source), "--bazel", "docker-image://toolkit/bazel:debian", "--cache", CACHE]
    given = {name: entry["default"] for name, entry in action["inputs"].items()}
    given |= {"cuda": "12.6.1", "cudnn": "9.5.0", "capability": "7.5", "arguments": shlex.join(arguments)}
    variables = {
        key: given[value.removeprefix("${{ inputs.").removesuffix(" }}")] for key, value in step["env"].items()
    }
    variables |= {"GITHUB_OUTPUT": str(folder / "output"), "RUNNER_TEMP": str(folder), "PYTHONPATH": str(ROOT)}
    variables["PATH"] = f"{folder}{os.pathsep}{os.environ['PATH']}"
    argv = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
    done = subprocess.run(
        argv, cwd=folder, env=workspace.variables | variables, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    outputs = dict(line.split("=", 1) for line in (folder / "output").read_text().splitlines())
    assert (folder / outputs["wheel"]).is_file()
    assert workspace.toolkit("verify", outputs["folder"]).returncode == 0
