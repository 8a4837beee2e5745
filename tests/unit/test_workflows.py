import os
import re
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from tests.conftest import NEEDS

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))

ATTEST = {"id-token": "write", "attestations": "write"}
PUBLISH = {"id-token": "write", "pages": "write"}


def _load(path: Path) -> dict[str, Any]:
    value: dict[str, Any] = yaml.safe_load(path.read_text())
    return value


def _steps(path: Path) -> list[dict[str, Any]]:
    return [step for job in _load(path)["jobs"].values() for step in job.get("steps", [])]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_no_rights_that_are_not_asked_for_and_no_endless_jobs(path: Path) -> None:
    workflow = _load(path)
    assert workflow["permissions"] == {}
    assert workflow["concurrency"]["cancel-in-progress"]
    for name, job in workflow["jobs"].items():
        assert "uses" in job or job["timeout-minutes"] <= 90
        more = {"propose": {"contents": "write", "pull-requests": "write"}, "attest": ATTEST}
        more["publish"] = PUBLISH
        if path.name == "release.yml":
            # A workflow that is called has no more rights than the job that calls it.
            more |= {"build": ATTEST, "pages": PUBLISH}
        assert job["permissions"] == {"contents": "read"} | more.get(name, {})


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_actions_are_pinned_to_commits(path: Path) -> None:
    for step in _steps(path):
        if "uses" in step:
            assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", step["uses"])


def test_what_may_write_runs_nothing_that_others_wrote() -> None:
    used = {
        name: [step.get("uses", "").partition("@")[0] or step["run"] for step in job["steps"]]
        for path in WORKFLOWS
        for name, job in _load(path)["jobs"].items()
        if "steps" in job and "write" in job["permissions"].values()
    }
    assert used == {
        "attest": ['base64 --decode <<<"$SUMS" >SHA256SUMS', "actions/attest-build-provenance"],
        "propose": ["actions/checkout", "actions/download-artifact", '.ci/propose "$RUNNER_TEMP/refresh"'],
        "publish": ["actions/deploy-pages"],
    }


def test_a_stranger_starts_nothing_that_has_a_secret_or_a_card() -> None:
    # YAML 1.1 reads the key `on` as true.
    triggers = {path.stem: _load(path)[True] for path in WORKFLOWS}
    open_to_strangers = {name for name, events in triggers.items() if "pull_request" in events}
    assert open_to_strangers == {"ci", "gpu"}
    assert set().union(*triggers.values()) <= {
        "push",
        "pull_request",
        "schedule",
        "workflow_call",
        "workflow_dispatch",
    }, "others run with the rights of the project on what a stranger sent"
    assert list(triggers["build"]) == ["workflow_call"], "nothing but a release starts it"
    for name in open_to_strangers:
        text = (ROOT / ".github" / "workflows" / f"{name}.yml").read_text()
        assert "secrets" not in text
        assert "github.token" not in text
    for path in WORKFLOWS:
        for name, job in _load(path)["jobs"].items():
            if path.stem == "gpu":
                assert [label for label in ("", "bug", "gpu", "graft") if _starts(job, label)] == [name]
            elif "uses" not in job:
                assert job["runs-on"] == "ubuntu-24.04"


def _starts(job: dict[str, Any], label: str) -> bool:
    """Return whether a job starts when a pull request gets a label; without one, when it gets other code."""
    event = SimpleNamespace(label=SimpleNamespace(name=label))
    names = {"github": SimpleNamespace(event_name="pull_request", event=event), "inputs": SimpleNamespace(graft=None)}
    condition = job["if"].replace("||", "or").replace("&&", "and")
    return bool(eval(condition, names))  # noqa: S307 - a maintainer wrote it


def test_what_signs_runs_nothing_of_the_repository_and_signs_what_was_built(tmp_path: Path) -> None:
    jobs = _load(ROOT / ".github" / "workflows" / "build.yml")["jobs"]
    *_, add, upload = jobs["build"]["steps"]
    decode, attest = jobs["attest"]["steps"]
    release = tmp_path / upload["with"]["path"]
    release.mkdir()
    for name in ("package.whl", "image.tar"):
        (release / name).write_text(name)
    _run_step(add, tmp_path, GITHUB_OUTPUT="output")
    assert decode["env"] == {"SUMS": "${{ needs.build.outputs.sums }}"}
    assert jobs["build"]["outputs"] == {"sums": f"${{{{ steps.{add['id']}.outputs.sums }}}}"}
    sums = (tmp_path / "output").read_text().strip().removeprefix("sums=")
    _run_step(decode, tmp_path, SUMS=sums)
    checked = ["sha256sum", "--check", "--strict", tmp_path / attest["with"]["subject-checksums"]]
    subprocess.run(checked, cwd=release, check=True)
    (release / "image.tar").write_text("changed")
    assert subprocess.run(checked, cwd=release, check=False).returncode == 1


def _run_step(step: dict[str, Any], folder: Path, **variables: str) -> None:
    # GitHub runs a step so.
    argv = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
    subprocess.run(argv, cwd=folder, env={**os.environ, **variables}, check=True)


def test_no_test_is_skipped_for_want_of_an_engine_or_of_tensorflow_for_gpus() -> None:
    assert ".ci/run" in [step.get("run") for step in _steps(ROOT / ".github" / "workflows" / "ci.yml")]
    script = (ROOT / ".ci" / "run").read_text()
    for required, _ in NEEDS.values():
        assert re.search(rf"^export .*\b{required}=1", script, re.MULTILINE), required


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_no_checkout_keeps_credentials_and_no_job_gives_its_token_to_every_step(path: Path) -> None:
    workflow = _load(path)
    for step in _steps(path):
        if step.get("uses", "").startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] is False
    for holder in (workflow, *workflow["jobs"].values()):
        assert "token" not in str(holder.get("env", "")).lower()


def test_every_package_of_ci_is_installed_by_its_hash() -> None:
    script = (ROOT / ".ci" / "run").read_text()
    for line in re.findall(r".*pip install.*(?:\\\n.*)*", script):
        assert "--require-hashes" in line
    named = {words[-1].rstrip(";") for words in re.findall(r"install (\.venv-\S+) (\S+)", script)}
    named |= set(re.findall(r"(?m)^ *(?:beside )?prepare ([\w-]+)$", script))
    folder = ROOT / ".ci" / "requirements"
    assert {f"{name}.txt" for name in named} == {path.name for path in folder.glob("*.txt")}
    for path in folder.glob("*.txt"):
        text = path.read_text()
        for entry in re.split(r"(?m)^(?=\S)", text)[1:]:
            assert re.match(r"[\w.-]+==\S+ ", entry), entry
            assert "--hash=sha256:" in entry
        assert "://" not in text
