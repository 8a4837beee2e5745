"""Grafts the published wheel for an RTX 5090 and rehearses it: downloads of 1.2 GB, and half an hour of two cores."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.rehearsal.conftest import ROOT

pytestmark = pytest.mark.weekly

Toolkit = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture(scope="module")
def toolkit(tmp_path_factory: pytest.TempPathFactory) -> Toolkit:
    folder = tmp_path_factory.mktemp("grafts")

    def run(*arguments: str) -> tuple[int, dict[str, Any]]:
        variables = {**os.environ, "PYTHONPATH": str(ROOT), "TOOLKIT_STATE": str(folder / "state")}
        argv = [sys.executable, "-m", "toolkit", *arguments, "--json"]
        done = subprocess.run(argv, cwd=folder, env=variables, capture_output=True, text=True, check=False)
        return done.returncode, json.loads(done.stdout or "{}")

    return run


@pytest.fixture(scope="module")
def grafted(toolkit: Toolkit) -> Path:
    code, made = toolkit("graft", "--gpu", "RTX 5090", "--tensorflow", "2.21.0")
    assert code == 0, made
    libraries = made["graft"]["libraries"]
    assert sum(item["kernels"] for item in libraries) == 14806
    assert {reason for item in libraries for reason in item["left"]} == {
        "PTX text of sm_50, which the driver compiles when it is used"
    }
    return Path(made["folder"])


def find_original(grafted: Path, version: str) -> str:
    (found,) = (grafted.parents[1] / "state").glob(f"toolkit-cache/graft/tensorflow-*/tensorflow-{version}-*.whl")
    return str(found)


def rehearse(toolkit: Toolkit, wheel: str, *options: str) -> tuple[int, dict[str, Any]]:
    return toolkit("rehearse", "digits", "--gpu", "rtx5090", "--no-find-batch", "--wheel", wheel, *options)


def test_the_same_graft_again_is_there_within_seconds(toolkit: Toolkit, grafted: Path) -> None:
    start = time.monotonic()
    code, made = toolkit("graft", "--gpu", "RTX 5090", "--tensorflow", "2.21.0")
    assert (code, made["reused"], Path(made["folder"])) == (0, True, grafted)
    assert time.monotonic() - start < 5


def test_it_is_made_again_to_the_byte(toolkit: Toolkit, grafted: Path) -> None:
    assert toolkit("reproduce", str(grafted))[0] == 0


@pytest.mark.parametrize(
    "options", [("--memory", "plain"), ("--memory", "recompute"), ("--memory", "shared"), ("--jit", "--depth", "10")]
)
def test_no_kernel_is_left_to_ptx_on_the_emulated_card(
    toolkit: Toolkit, grafted: Path, options: tuple[str, ...]
) -> None:
    code, report = rehearse(toolkit, str(grafted), *options)
    assert (code, report["findings"], report["refused"]) == (0, [], {})
    assert report["fat_binaries"] == {"cubin sm_120": 330}
    assert [name for name in report["modules"] if name.startswith("fat binary")] == ["fat binary: cubin sm_120"]
    assert report["modules"]["fat binary: cubin sm_120"] > 300
    assert report["modules"]["cubin sm_120"] > 0  # of XLA


def test_the_original_leaves_its_kernels_to_ptx(toolkit: Toolkit, grafted: Path) -> None:
    code, report = rehearse(toolkit, find_original(grafted, "2.21.0"), "--require-machine-code")
    assert code == 7
    assert {finding["kind"] for finding in report["findings"]} == {"PTX"}


def test_2_20_ends_at_the_first_elementwise_operation_and_runs_once_repaired(toolkit: Toolkit, grafted: Path) -> None:
    code, made = toolkit("graft", "--repair", "--tensorflow", "2.20.0")
    assert code == 0, made
    code, report = rehearse(toolkit, find_original(grafted, "2.20.0"))
    assert code == 7
    (finding,) = report["findings"]
    assert finding["text"].startswith("the job stops: InternalError: node at Cast: 'cuLaunchKernel(")
    assert "CUDA_ERROR_INVALID_HANDLE" in finding["text"]
    loaded = "'cuModuleLoadData(&module, data)' failed with 'CUDA_ERROR_INVALID_PTX'"
    assert any(loaded in line for line in report["log"])
    assert "fat binary: PTX for other GPUs alone, sm_90a" in report["modules"]
    assert rehearse(toolkit, made["folder"])[0] == 0
