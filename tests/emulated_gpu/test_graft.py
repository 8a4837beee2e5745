"""Grafts the published wheel for an RTX 5090, and trains on an emulated one: 1.2 GB, and half an hour of two cores."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.emulated_gpu.conftest import ROOT, Case, Library, Outcome, train

pytestmark = pytest.mark.weekly

SET = "cuda-2.21.0-12.8.1-9.10.2"

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


def find_original(grafted: Path, version: str) -> Path:
    (found,) = (grafted.parents[1] / "state").glob(f"toolkit-cache/graft/tensorflow-*/tensorflow-{version}-*.whl")
    return found


def make_library(wheel: Path, requirements: str, folder: Path) -> Library:
    """Make an environment of a wheel and its locked set without NVIDIA's libraries, and emulate them there."""
    entries = re.split(r"(?m)^(?=\S)", (ROOT / "docker" / "requirements" / f"{requirements}.txt").read_text())
    kept = [entry for entry in entries if not re.match(r"tensorflow==|nvidia-(?!cuda-nvcc-)", entry)]
    locked = folder / "locked.txt"
    locked.write_text("".join(kept))
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    python = folder / "venv" / "bin" / "python"
    pip = [python, "-m", "pip", "install", "-qq", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*pip, "--require-hashes", "-r", locked], check=True)
    subprocess.run([*pip, "--no-index", wheel], check=True)
    (folder / "library").mkdir()
    return Library.build(folder / "library", str(python))


def train_on_rtx5090(library: Library, folder: Path, *options: str) -> Outcome:
    return train(Case(("digits", *options), gpu="rtx5090", elementwise=True), library, folder)


@pytest.fixture(scope="module")
def grafted_library(grafted: Path, tmp_path_factory: pytest.TempPathFactory) -> Library:
    (wheel,) = grafted.glob("*.whl")
    return make_library(wheel, SET, tmp_path_factory.mktemp("grafted"))


def test_it_is_made_again_to_the_byte(toolkit: Toolkit, grafted: Path) -> None:
    assert toolkit("reproduce", str(grafted))[0] == 0


@pytest.mark.parametrize(
    "options", [("--memory", "plain"), ("--memory", "recompute"), ("--memory", "shared"), ("--jit", "--depth", "10")]
)
def test_no_kernel_is_left_to_ptx_on_the_emulated_card(
    grafted_library: Library, tmp_path: Path, options: tuple[str, ...]
) -> None:
    outcome = train_on_rtx5090(grafted_library, tmp_path, *options)
    counts = outcome.record["counts"]
    assert (outcome.faults, counts.get("refused", {})) == ({}, {})
    assert counts["fat binary"] == {"cubin sm_120": 330}
    modules = counts["module"]
    assert [name for name in modules if name.startswith("fat binary")] == ["fat binary: cubin sm_120"]
    assert modules["fat binary: cubin sm_120"] > 300
    assert modules["cubin sm_120"] > 0  # of XLA


def test_the_original_leaves_its_kernels_to_ptx(grafted: Path, tmp_path: Path) -> None:
    outcome = train_on_rtx5090(make_library(find_original(grafted, "2.21.0"), SET, tmp_path), tmp_path)
    assert set(outcome.faults) == {"PTX"}


def test_2_20_ends_at_the_first_elementwise_operation_and_runs_once_repaired(
    toolkit: Toolkit, grafted: Path, tmp_path: Path
) -> None:
    code, made = toolkit("graft", "--repair", "--tensorflow", "2.20.0")
    assert code == 0, made
    (repaired,) = Path(made["folder"]).glob("*.whl")
    for name, wheel in (("original", find_original(grafted, "2.20.0")), ("repaired", repaired)):
        (tmp_path / name).mkdir()
        library = make_library(wheel, "cuda-2.20.0-12.8.1-9.8.0", tmp_path / name)
        outcome = train(Case(("digits",), gpu="rtx5090"), library, tmp_path / name)
        if name == "original":
            assert "node at Cast" in outcome.faults["error"] or "'cuLaunchKernel(" in outcome.faults["error"]
            assert "CUDA_ERROR_INVALID_HANDLE" in outcome.faults["error"]
            assert "'cuModuleLoadData(&module, data)' failed with 'CUDA_ERROR_INVALID_PTX'" in outcome.log
            assert "fat binary: PTX for other GPUs alone, sm_90a" in outcome.record["counts"]["module"]
        else:
            assert outcome.faults == {}
