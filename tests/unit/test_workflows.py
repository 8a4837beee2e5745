import os
import re
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from tests.conftest import NEEDS
from toolkit import __version__

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


def test_the_package_of_a_tag_has_its_version(tmp_path: Path) -> None:
    done = [
        subprocess.run([ROOT / ".ci" / "package", tag, tmp_path], capture_output=True, text=True, check=False)
        for tag in (f"v{__version__}", "v0.0.0")
    ]
    assert [each.returncode for each in done] == [0, 2]
    assert "the tag is v0.0.0, and the package has version" in done[1].stderr
    assert [path.name for path in tmp_path.iterdir()] == [f"tensorflow_toolkit-{__version__}-py3-none-any.whl"]


def test_no_test_is_skipped_for_want_of_an_engine_or_of_tensorflow_for_gpus() -> None:
    assert ".ci/run" in [step.get("run") for step in _steps(ROOT / ".github" / "workflows" / "ci.yml")]
    script = (ROOT / ".ci" / "run").read_text()
    for required, _ in NEEDS.values():
        assert re.search(rf"^export .*\b{required}=1", script, re.MULTILINE), required


def _write_program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/usr/bin/env bash\n{text}\n")
    path.chmod(0o755)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_no_checkout_keeps_credentials_and_no_job_gives_its_token_to_every_step(path: Path) -> None:
    workflow = _load(path)
    for step in _steps(path):
        if step.get("uses", "").startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] is False
    for holder in (workflow, *workflow["jobs"].values()):
        assert "token" not in str(holder.get("env", "")).lower()


TABLE = "toolkit/versions/table.yaml"


def _propose(
    tmp_path: Path, patched: str, notes: str, opened: int = 0
) -> tuple[subprocess.CompletedProcess[str], Path]:
    """Run .ci/propose in a clone with a patch of one file, if any; return how it ended, and the folder of its files."""
    clone, folder = tmp_path / "clone", tmp_path / "refresh"
    (clone / ".ci").mkdir(parents=True)
    folder.mkdir()
    shutil.copy(ROOT / ".ci" / "propose", clone / ".ci")
    git = ["git", "-C", str(clone), "-c", "user.name=a", "-c", "user.email=a@b"]
    file = clone / (patched or TABLE)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("before\n")
    for words in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "--message", "first"]):
        subprocess.run([*git, *words], check=True)
    if patched:
        file.write_text("after\n")
        patch = subprocess.run([*git, "diff"], check=True, capture_output=True).stdout
        (folder / "table.patch").write_bytes(patch)
        (folder / "notes").write_text(notes)
    subprocess.run([*git, "checkout", "--quiet", "."], check=True)
    subprocess.run([*git, "remote", "add", "origin", str(tmp_path / "origin")], check=True)
    subprocess.run(["git", "init", "--quiet", "--bare", str(tmp_path / "origin")], check=True)
    _write_program(tmp_path / "bin" / "gh", f'echo "gh $GH_TOKEN $1 $2" >>{folder}/seen; echo {opened}')
    _write_program(clone / ".git" / "hooks" / "pre-push", f'echo "hook" >>{folder}/seen')
    variables = {**os.environ, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "GH_TOKEN": "the-token"}
    argv = [clone / ".ci" / "propose", folder]
    return subprocess.run(argv, env=variables, capture_output=True, text=True, check=False), folder


@pytest.mark.parametrize(("opened", "what"), [(0, "create"), (1, "edit")])
def test_a_table_that_differs_becomes_a_pull_request_with_the_notes_as_they_are(
    tmp_path: Path, opened: int, what: str
) -> None:
    done, folder = _propose(tmp_path, TABLE, "new\n```\n@everybody <b>\x1b[31m\n", opened)
    assert done.returncode == 0, done.stderr
    argv = ["git", "-C", tmp_path / "origin", "show", f"refresh-table:{TABLE}"]
    assert subprocess.run(argv, capture_output=True, text=True, check=True).stdout == "after\n"
    assert (folder / "seen").read_text() == f"gh the-token pr list\ngh the-token pr {what}\n", "no hook runs"
    _, _, *lines = (folder / "body").read_text().splitlines()
    assert lines == ["    new", "    ```", "    @everybody <b>[31m"], "an indented block has no end but its last line"


def test_without_a_patch_there_is_no_pull_request(tmp_path: Path) -> None:
    done, folder = _propose(tmp_path, "", "")
    assert done.returncode == 0
    assert not (folder / "seen").exists()


@pytest.mark.parametrize("name", [".github/workflows/build.yml", ".ci/run", "toolkit/cli/build.py", "Makefile"])
def test_a_proposal_changes_the_table_and_what_is_made_from_it_alone(tmp_path: Path, name: str) -> None:
    done, folder = _propose(tmp_path, name, "")
    assert done.returncode == 8
    assert name in done.stderr
    assert not (folder / "seen").exists()


@pytest.mark.parametrize("pinned", [True, False])
def test_a_base_image_is_pulled_by_its_digest_and_the_digest_is_said(tmp_path: Path, *, pinned: bool) -> None:
    known, looked_up = f"sha256:{'a' * 64}", f"sha256:{'b' * 64}"
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "pull-bases", tmp_path / ".ci")
    listed = f"# bases\npython:3.11-slim-trixie {known if pinned else '-'}\npython:3.13-slim-trixie -\n"
    (tmp_path / ".ci" / "bases.txt").write_text(listed)
    seen = tmp_path / "seen"
    _write_program(tmp_path / "bin" / "docker", f'echo "$*" >>{seen}; [ "$1" != buildx ] || echo {looked_up}')
    done = subprocess.run(
        [tmp_path / ".ci" / "pull-bases", "python:3.11-slim-trixie"],
        env={**os.environ, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"python:3.11-slim-trixie@{known if pinned else looked_up}\n"
    assert (f"@{known}" in seen.read_text()) is pinned
    assert ("has no digest" in done.stderr) is not pinned
    steps = [step.get("run", "") for step in _steps(ROOT / ".github" / "workflows" / "build.yml")]
    assert not any("docker pull" in step for step in steps)
    assert any(step.startswith(".ci/pull-bases ") and ">release/" in step for step in steps), "it is attested"


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
