import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import NEEDS

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def _load(path: Path) -> dict[str, Any]:
    value: dict[str, Any] = yaml.safe_load(path.read_text())
    return value


def _steps(path: Path) -> list[dict[str, Any]]:
    return [step for job in _load(path)["jobs"].values() for step in job["steps"]]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_no_rights_that_are_not_asked_for_and_no_endless_jobs(path: Path) -> None:
    workflow = _load(path)
    assert workflow["permissions"] == {}
    assert workflow["concurrency"]["cancel-in-progress"]
    for job in workflow["jobs"].values():
        assert job["timeout-minutes"] <= 90
        assert job["permissions"] == {"contents": "read"}


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_actions_are_pinned_to_commits(path: Path) -> None:
    for step in _steps(path):
        if "uses" in step:
            assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", step["uses"])


def test_no_test_is_skipped_for_want_of_an_engine_or_of_tensorflow_for_gpus() -> None:
    assert ".ci/run" in [step.get("run") for step in _steps(ROOT / ".github" / "workflows" / "ci.yml")]
    script = (ROOT / ".ci" / "run").read_text()
    for required, _ in NEEDS.values():
        assert re.search(rf"^export .*\b{required}=1", script, re.MULTILINE), required


def test_the_gpu_is_looked_for_before_anything_else() -> None:
    steps = [step["run"] for step in _steps(ROOT / ".github" / "workflows" / "gpu.yml") if "run" in step]
    assert steps[0].startswith("nvidia-smi")


def test_pull_requests_reach_the_gpu_by_label_alone() -> None:
    workflow = _load(ROOT / ".github" / "workflows" / "gpu.yml")
    # YAML 1.1 reads the key `on` as true.
    assert workflow[True]["pull_request"] == {"types": ["labeled"]}
    assert "label.name == 'gpu'" in workflow["jobs"]["gpu"]["if"]


def test_the_gpu_is_asked_to_confirm_by_a_script_that_is_tested_here() -> None:
    steps = _steps(ROOT / ".github" / "workflows" / "gpu.yml")
    (command,) = [shlex.split(step["run"]) for step in steps if "confirm.py" in step.get("run", "")]
    assert (ROOT / command[1]).is_file()
    assert "--gpu" in command  # otherwise a run on the processor would pass
    assert "--gpu" in command[command.index("--train") + 1]
    # Rehearsals run on the host, but the workflow's engine is Docker.
    rehearsal = shlex.split(command[command.index("--rehearse") + 1])
    assert rehearsal == [".venv/bin/toolkit", "rehearse", "--engine", "host"]
    kept = next(step["with"]["path"] for step in steps if "upload-artifact" in step.get("uses", ""))
    assert "gpu-report/report.md" in kept


def test_the_page_for_owners_of_a_gpu_names_the_workflows_commands() -> None:
    page = (ROOT / "docs" / "gpu.md").read_text()
    steps = _steps(ROOT / ".github" / "workflows" / "gpu.yml")
    (command,) = [step["run"] for step in steps if "confirm.py" in step.get("run", "")]
    assert command in page
    block = page.split("```")[1].strip().splitlines()[1:]  # the first line is the name of the language
    assert len(block) == 5
    assert "http" not in page


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_every_make_target_exists(path: Path) -> None:
    targets = set(re.findall(r"^([\w./-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    for step in _steps(path):
        words = shlex.split(step.get("run", ""))
        if words[:1] == ["make"]:
            assert words[1] in targets
