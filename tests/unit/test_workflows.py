"""The workflows keep the house's rules, and what they run exists."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

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
        assert job["timeout-minutes"] <= 60
        assert job["permissions"] == {"contents": "read"}


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_actions_are_pinned_to_commits(path: Path) -> None:
    for step in _steps(path):
        if "uses" in step:
            assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", step["uses"])


def test_the_gpu_is_looked_for_before_anything_else() -> None:
    steps = [step["run"] for step in _steps(ROOT / ".github" / "workflows" / "gpu.yml") if "run" in step]
    assert steps[0].startswith("nvidia-smi")


def test_pull_requests_reach_the_gpu_by_label_alone() -> None:
    workflow = _load(ROOT / ".github" / "workflows" / "gpu.yml")
    # YAML 1.1 reads the key `on` as the word for true.
    assert workflow[True]["pull_request"] == {"types": ["labeled"]}
    assert "label.name == 'gpu'" in workflow["jobs"]["gpu"]["if"]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_every_make_target_exists(path: Path) -> None:
    targets = set(re.findall(r"^([\w./-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    for step in _steps(path):
        words = shlex.split(step.get("run", ""))
        if words[:1] == ["make"]:
            assert words[1] in targets
