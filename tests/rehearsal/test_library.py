"""The emulated libraries, called through ctypes without TensorFlow, and the programs that refuse them."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.rehearsal.conftest import PYTHON, ROOT

BUILD = """
import sys
from pathlib import Path
from train.rehearsal import library
print(library.build(library.find_tensorflow(), Path(sys.argv[1])))
"""
ASK = """
import ctypes, json, sys
library = ctypes.CDLL("libcuda.so.1")
name, count, out = ctypes.create_string_buffer(128), ctypes.c_int(), ctypes.c_void_p()
answers = {"init": library.cuInit(0), "emulated": library.nullgpu_emulated()}
library.cuDeviceGetCount(ctypes.byref(count))
answers["count"] = count.value
if count.value:
    library.cuDeviceGetName(name, 128, 0)
    answers["name"] = name.value.decode()
answers["table"] = library.cuGetExportTable(ctypes.byref(out), b"0123456789abcdef")
answers["memory"] = library.cuMemAlloc_v2(ctypes.byref(out), ctypes.c_size_t(1 << 20))
host = ctypes.create_string_buffer(b"x" * 64, 64)
if answers["memory"] == 0:
    size = ctypes.c_size_t(64)
    answers["copies"] = [library.cuMemcpyHtoD_v2(out, host, size), library.cuMemcpyDtoH_v2(host, out, size)]
answers["came back"] = host.raw == bytes(64)
library.nullgpu_write(sys.argv[1].encode())
answers["counts"] = json.load(open(sys.argv[1]))
print(json.dumps(answers))
"""


@pytest.fixture(scope="module")
def library(cache: Path) -> Path:
    command = [PYTHON, "-c", BUILD, str(cache)]
    return Path(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip())


def run(library: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "LD_LIBRARY_PATH": str(library), **variables}
    return subprocess.run([PYTHON, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def ask(library: Path, folder: Path, **variables: str) -> dict[str, Any]:
    done = run(library, "-c", ASK, str(folder / "counts.json"), **variables)
    assert done.returncode == 0, done.stderr
    answers: dict[str, Any] = json.loads(done.stdout)
    return answers


def test_a_device_is_always_named_as_emulated(library: Path, tmp_path: Path) -> None:
    found = ask(library, tmp_path, NULLGPU_NAME="Tesla T4", NULLGPU_COUNT="2")
    assert (found["init"], found["count"], found["emulated"]) == (0, 2, 1)
    assert found["name"] == "Tesla T4 (emulated)"


def test_without_a_description_there_is_no_device(library: Path, tmp_path: Path) -> None:
    found = ask(library, tmp_path)
    assert (found["init"], found["count"]) == (100, 0)


def test_the_private_table_of_nvidias_libraries_is_refused(library: Path, tmp_path: Path) -> None:
    found = ask(library, tmp_path, NULLGPU_NAME="Tesla T4")
    assert found["table"] == 801
    assert found["counts"]["not emulated"] == {"cuGetExportTable": 1}


def test_copies_are_counted_and_nothing_comes_back(library: Path, tmp_path: Path) -> None:
    found = ask(library, tmp_path, NULLGPU_NAME="Tesla T4")
    assert found["copies"] == [0, 0]
    assert found["counts"]["copy"] == {"to device 64": 1, "to host 64": 1}
    assert found["counts"]["wait"] == {"copy": 2}
    assert found["came back"]


def test_more_memory_than_the_device_has_is_refused(library: Path, tmp_path: Path) -> None:
    found = ask(library, tmp_path, NULLGPU_NAME="Tesla T4", NULLGPU_MEMORY=str(64 << 20))
    assert found["memory"] == 2
    assert any("allocation" in text for text in found["counts"]["refused"])


def test_it_is_compiled_once(library: Path, cache: Path) -> None:
    before = sorted(cache.iterdir())
    done = subprocess.run([PYTHON, "-c", BUILD, str(cache)], cwd=ROOT, capture_output=True, text=True, check=True)
    assert Path(done.stdout.strip()) == library
    assert sorted(cache.iterdir()) == before


def test_the_training_job_refuses_it(library: Path, tmp_path: Path) -> None:
    words = ("digits", "--depth", "10", "--steps", "1", "--out", str(tmp_path))
    done = run(library, "-m", "train", *words, NULLGPU_NAME="Tesla T4")
    assert done.returncode == 4
    assert "this GPU is emulated: Tesla T4 (emulated)" in done.stderr


def test_the_smoke_checks_refuse_it(library: Path) -> None:
    program = (
        "import sys; from toolkit.smoke.inside import device; from toolkit.smoke.inside.check import Ask; "
        "from unittest import mock\n"
        "with mock.patch.object(device, '_respect'):\n    device.driver(Ask())"
    )
    done = run(library, "-c", program, NULLGPU_NAME="Tesla T4")
    assert "the CUDA driver here is an emulated one" in done.stderr
