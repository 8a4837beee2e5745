"""Findings: each level can be reached, and what compose needs follows from them."""

import os
import shutil
from collections import namedtuple
from pathlib import Path

import pytest

from toolkit import doctor, dotenv
from toolkit.doctor import Finding, building, gpu, sources
from toolkit.engine.ownership import IMAGE_USER
from toolkit.settings import Settings, resolve


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
    return resolve({}, environment={})


def _find(findings: list[Finding], name: str) -> Finding:
    return next(finding for finding in findings if finding.id == name)


def test_a_machine_without_an_engine_is_warned_not_refused(settings: Settings) -> None:
    findings = doctor.examine(settings, offline=True)
    assert _find(findings, "engine").level == "warn"
    assert _find(findings, "engine").remedy
    assert not [finding for finding in findings if finding.level == "fail"]
    assert list(Path.cwd().iterdir()) == []


def test_too_little_disk_fails(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")(1 << 40, 1 << 40, 1 << 20)  # noqa: PYI024 - as shutil's own
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    assert _find(doctor.examine(settings, offline=True), "disk").level == "fail"


def test_an_output_that_is_a_file_fails(settings: Settings) -> None:
    Path("runs").write_text("")
    assert _find(doctor.examine(settings, offline=True), "writable-runs").level == "fail"


@pytest.mark.parametrize(
    ("script", "level", "word"),
    [
        ("echo 'Tesla T4, 7.5, 560.35.03'", "ok", "Tesla T4"),
        ("echo 'Failed to initialize NVML: Driver/library version mismatch'; exit 18", "warn", "mismatch"),
    ],
)
def test_the_driver_is_asked(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, level: str, word: str
) -> None:
    tool = tmp_path / "bin" / "nvidia-smi"
    tool.parent.mkdir()
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}{os.pathsep}{os.environ['PATH']}")
    finding = next(finding for finding in doctor.examine(settings, offline=True) if finding.id.startswith("gpu"))
    assert finding.level == level
    assert word in finding.summary


@pytest.mark.parametrize(
    ("driver", "level", "word"),
    [
        ("560.35.03", "ok", "runs CUDA 12.6.1"),
        ("535.104.05", "ok", "minor-version compatibility"),
        ("470.82.01", "fail", "too old"),
    ],
)
def test_the_driver_is_held_against_the_cuda_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, driver: str, level: str, word: str
) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\necho 'Tesla T4, 7.5, {driver}'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    settings = resolve({"cuda": "12.6.1", "cudnn": "9.5.0"}, environment={})
    finding = _find(list(gpu.check(settings)), "driver")
    assert finding.level == level
    assert word in finding.summary


def test_a_source_that_does_not_answer_is_a_warning(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "SOURCES", {"nobody": ("https://127.0.0.1:1", "nothing")})
    (finding,) = sources.check(settings)
    assert finding.level == "warn"
    assert "out of reach" in finding.summary


def test_a_source_build_is_never_a_reason_to_stop(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")(1, 1, 1)  # noqa: PYI024 - as shutil's own
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    (finding,) = building.check(settings)
    assert finding.level == "warn"
    assert "40 are the least" in finding.summary


def test_compose_gets_the_gpu_only_where_runtime_and_gpu_are_there(settings: Settings) -> None:
    runtime = Finding(id="nvidia-runtime", level="ok", summary="")
    gpu = Finding(id="gpu-0", level="ok", summary="")
    assert dotenv.compose([runtime, gpu], settings)["COMPOSE_FILE"] == "compose.yaml:compose.gpu.yaml"
    assert dotenv.compose([runtime], settings)["COMPOSE_FILE"] == "compose.yaml"
    assert dotenv.compose([gpu], settings)["COMPOSE_FILE"] == "compose.yaml"


def test_compose_never_runs_as_root(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 0)
    assert dotenv.compose([], settings)["TOOLKIT_UID"] == str(IMAGE_USER)
    monkeypatch.setattr(os, "getuid", lambda: 1234)
    assert dotenv.compose([], settings)["TOOLKIT_UID"] == "1234"


def test_lines_of_others_stay_in_the_env_file(tmp_path: Path) -> None:
    path = tmp_path / ".env"
    path.write_text("MINE=1\nTOOLKIT_UID=5\n# a remark\n")
    dotenv.write({"TOOLKIT_UID": "6"}, path)
    dotenv.write({"TOOLKIT_UID": "7"}, path)
    assert path.read_text() == "MINE=1\n# a remark\nTOOLKIT_UID=7\n"
