import os
import shutil
from collections import namedtuple
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.makers.newest import NEWEST
from tests.server import reply, serve
from toolkit.base.findings import Finding
from toolkit.doctor import advice, compose_env, examination, reading, services
from toolkit.engine import effort
from toolkit.versions.settings import Settings, resolve


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
    _set_free_space(monkeypatch, 1 << 40)  # Not the disk on which the tests happen to run.
    return resolve({}, environment={})


def _set_free_space(monkeypatch: pytest.MonkeyPatch, free: int) -> None:
    usage = namedtuple("usage", "total used free")(1 << 41, 1 << 40, free)  # noqa: PYI024 - as shutil's own
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)


def _find(findings: list[Finding], name: str) -> Finding:
    return next(finding for finding in findings if finding.id == name)


def test_a_machine_that_can_do_its_work_without_an_engine_is_not_scolded(settings: Settings) -> None:
    findings = examination.examine(settings, offline=True)
    assert _find(findings, "engine").state == "unneeded"
    assert not [finding for finding in findings if finding.level == "fail"]
    assert list(Path.cwd().iterdir()) == []
    asked = examination.examine(replace(settings, engine="docker"), offline=True)
    assert (_find(asked, "engine").level, bool(_find(asked, "engine").remedy)) == ("fail", True)


def test_too_little_disk_fails(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    _set_free_space(monkeypatch, 1 << 20)
    assert _find(examination.examine(settings, offline=True), "disk").level == "fail"


@pytest.mark.parametrize(
    ("card", "cuda", "system", "words"),
    [
        ("Tesla T4, 7.5, 575.57.08", "13.0.0", "", ["install driver 580.65.06 or a newer one", "ask for CUDA 12.9.1"]),
        ("Tesla T4, 7.5, 470.82.01", "12.6.1", "", ["driver 560.35.03", "525.60.13 is the oldest", "minor-ver"]),
        ("RTX 2070, 7.5, 511.65", "12.6.1", "wsl2", ["install driver 560.94", "in Windows, ", "528.33 is the oldest"]),
        ("Tesla P100, 6.0, 510.47.03", "12.6.1", "", ["branch 570 or 580, and no later one", "525.60.13"]),
        ("RTX 5090, 12.0, 550.54.14", "12.8.1", "", ["install driver 570.124.06", "570.26 is the oldest"]),
    ],
)
def test_the_remedy_names_the_driver_that_the_cuda_asked_for_needs(
    install: Callable[[str, str], Path],
    monkeypatch: pytest.MonkeyPatch,
    card: str,
    cuda: str,
    system: str,
    words: list[str],
) -> None:
    install("nvidia-smi", f"echo '{card}'")
    if system:
        monkeypatch.setattr(reading, "find_system", lambda _root: system)
    finding = _find(list(advice.check_gpu(resolve({"cuda": cuda, "cudnn": "9.12.0"}, environment={}))), "driver")
    assert finding.state == "fail"
    assert all(word in finding.remedy for word in words), finding.remedy
    assert "470" not in finding.remedy
    assert ("ask for" in finding.remedy) == ("ask for CUDA 12.9.1" in words)


def test_the_index_is_asked_as_pip_is_told(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "SOURCES", {})
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    for name in ("PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_NO_INDEX"):
        monkeypatch.delenv(name, raising=False)
    page = b'<html><body><a href="pip-1.0-py3-none-any.whl">pip-1.0-py3-none-any.whl</a></body></html>'
    with serve(GET=reply(200, page, "text/html"), HEAD=reply(404)) as address:
        monkeypatch.setenv("PIP_INDEX_URL", f"http://{address}/simple")
        assert _find(list(services.check_sources(settings)), "source-python").level == "ok"
    finding = _find(list(services.check_sources(settings)), "source-python")
    assert finding.level == "warn"
    assert "--ca-bundle" in finding.remedy


@pytest.mark.parametrize(
    ("card", "files", "requirements"),
    [
        ("Tesla T4, 7.5, 560.35.03", "compose.yaml:compose.gpu.yaml", NEWEST.requirements),
        ("Tesla T4, 7.5, 450.80.02", "compose.yaml", None),
        ("NVIDIA GeForce RTX 5090, 12.0, 580.65.06", "compose.yaml", None),
    ],
)
def test_compose_gets_the_gpu_only_where_runtime_and_a_published_set_are_there(
    settings: Settings, install: Callable[[str, str], Path], card: str, files: str, requirements: str | None
) -> None:
    install("nvidia-smi", f"echo '{card}'")
    runtime, found = Finding(id="nvidia-runtime", state="ok", evidence=""), list(advice.check_gpu(settings))
    values = compose_env.compose([runtime, *found], settings)
    assert (values["COMPOSE_FILE"], values.get("TOOLKIT_REQUIREMENTS")) == (files, requirements)
    assert compose_env.compose(found, settings)["COMPOSE_FILE"] == "compose.yaml"


def test_compose_runs_as_the_owner_of_the_runs(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the program does, so that either can go on with a run of the other."""
    monkeypatch.setattr(os, "getuid", lambda: 0)
    Path("runs").mkdir()
    found = Path("runs").stat()
    values = compose_env.compose([], settings)
    assert (values["TOOLKIT_UID"], values["TOOLKIT_GID"]) == (str(found.st_uid), str(found.st_gid))
    assert values["TOOLKIT_USERNS"] == ""
    monkeypatch.setattr(os, "getuid", lambda: 1234)
    assert compose_env.compose([], settings)["TOOLKIT_UID"] == "1234"


def test_lines_of_others_stay_in_the_env_file(tmp_path: Path) -> None:
    path = tmp_path / ".env"
    path.write_text("MINE=1\nTOOLKIT_UID=5\n# a remark\n")
    compose_env.write({"TOOLKIT_UID": "6"}, path)
    compose_env.write({"TOOLKIT_UID": "7"}, path)
    assert path.read_text() == "MINE=1\n# a remark\nTOOLKIT_UID=7\n"


@pytest.mark.parametrize(
    ("capabilities", "jobs", "said", "files"),
    [
        (0, 1, "about 12 h (9 to 26)", 10_704),
        (1, 1, "about 20 h (14 to 42)", 11_859),
        (5, 4, "about 8 h (6 to 13)", 11_859),
        (1, 64, "about 1 h (1 to 1)", 11_859),
    ],
)
def test_the_hours_of_a_build_are_said_with_their_error(capabilities: int, jobs: int, said: str, files: int) -> None:
    hours = effort.count_hours(capabilities, jobs)
    assert (hours.describe(), hours.files) == (said, files)
