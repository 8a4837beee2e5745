import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

pytestmark = pytest.mark.engine

ROOT = Path(__file__).parents[2]
WORKFLOW = yaml.safe_load((ROOT / ".github" / "workflows" / "gpu.yml").read_text())
PROGRAM = ".venv/bin/toolkit"
COMMANDS = [
    shlex.split(step["run"])[1:]
    for step in WORKFLOW["jobs"]["gpu"]["steps"]
    if step.get("run", "").startswith(f"{PROGRAM} ")
]


def test_there_are_commands() -> None:
    assert {arguments[0] for arguments in COMMANDS} == {"doctor", "smoke", "train"}


@pytest.mark.parametrize("arguments", COMMANDS, ids=lambda arguments: arguments[0])
def test_the_commands_are_understood(arguments: list[str]) -> None:
    planned = [*arguments, *([] if arguments[0] == "doctor" else ["--dry-run"])]
    done = subprocess.run(
        [sys.executable, "-m", "toolkit", *planned],
        cwd=ROOT,
        env={**os.environ, **WORKFLOW["env"]},
        capture_output=True,
        text=True,
        check=False,
    )
    # The doctor may find this machine too small for the CUDA set, but it must understand the command.
    assert done.returncode in ({0, 4} if arguments[0] == "doctor" else {0}), done.stderr
    if arguments[0] != "doctor":
        assert "--gpus all" in done.stdout
        assert "REQUIREMENTS=cuda-12.6.1" in done.stdout
