import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rehearsal import ptx
from rehearsal.request import choose_device
from tests.unit.rehearsal.test_kernels import PYTHON, ROOT
from train.errors import CheckError, PreflightError

SAID = """\
ptxas info    : 0 bytes gmem, 64 bytes cmem[4]
ptxas info    : Compiling entry function 'input_reduce_fusion_3' for 'sm_75'
ptxas info    : Function properties for input_reduce_fusion_3
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 40 registers, 8448 bytes smem, 384 bytes cmem[0]
ptxas info    : Compiling entry function 'loop_fusion' for 'sm_75'
ptxas info    : Function properties for loop_fusion
    48 bytes stack frame, 44 bytes spill stores, 40 bytes spill loads
ptxas info    : Used 255 registers, 360 bytes cmem[0]
"""


def test_what_ptxas_says_is_read() -> None:
    reduction, loop = ptx.read_usage(SAID)
    assert reduction == ptx.CompiledKernel(name="input_reduce_fusion_3", registers=40, spilled=0, shared=8448, stack=0)
    assert loop == ptx.CompiledKernel(name="loop_fusion", registers=255, spilled=44, shared=0, stack=48)
    assert ptx.summarize([reduction, loop]) == {
        "kernels": 2,
        "spilling": 1,
        "most_registers": 255,
        "most_shared": 8448,
    }


def test_nothing_is_read_from_nothing() -> None:
    assert ptx.read_usage("ptxas info    : 0 bytes gmem") == []
    assert ptx.summarize([])["most_registers"] == 0


def test_the_device_is_described_by_its_row() -> None:
    text = ptx.describe_target(choose_device("t4"))
    assert "major: 7 minor: 5" in text
    assert "core_count: 40 " in text
    assert "(emulated)" in text  # XLA's output must not be taken for that of a real card


def test_without_a_compiler_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(PreflightError, match="no C\\+\\+ compiler"):
        ptx.build_compiler(tmp_path, tmp_path)


def test_headers_that_do_not_fit_leave_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "false")  # as a compiler that lacks a header
    with pytest.raises(PreflightError, match="cannot be compiled"):
        ptx.build_compiler(tmp_path / "tensorflow", tmp_path / "cache")
    assert not list((tmp_path / "cache").iterdir())


def test_a_refusal_ends_with_what_was_said() -> None:
    command = [sys.executable, "-c", "raise SystemExit('out of registers')"]
    with pytest.raises(CheckError) as caught:
        ptx._run(command, "ptxas cannot assemble the step's PTX", dict(os.environ))
    assert "out of registers" in caught.value.why


@pytest.mark.rehearse
@pytest.mark.slow
def test_a_step_is_compiled_for_a_t4_without_one(tmp_path: Path) -> None:
    command = [
        PYTHON,
        "-m",
        "rehearsal.ptx",
        "digits",
        "--depth",
        "10",
        "--json",
        "--library-cache",
        str(tmp_path),
    ]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "CUDA_VISIBLE_DEVICES": ""}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["kernels"] == len(report["list"]) > 50
    assert 32 < report["most_registers"] <= 255
    assert 0 < report["most_shared"] <= 48 * 1024
    assert all(kernel["registers"] > 0 for kernel in report["list"])
