"""The emulated libraries, called through ctypes without TensorFlow, and the programs that refuse them."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.emulated_gpu.conftest import PYTHON, ROOT, Library
from tests.unit.graft import maker

ASK = """
import ctypes, json, sys
library = ctypes.CDLL("libcuda.so.1")
name, count, out = ctypes.create_string_buffer(128), ctypes.c_int(), ctypes.c_void_p()
answers = {"init": library.cuInit(0)}
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


def run(library: Library, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "LD_LIBRARY_PATH": str(library.folder), **variables}
    return subprocess.run([PYTHON, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def ask(library: Library, folder: Path, **variables: str) -> dict[str, Any]:
    done = run(library, "-c", ASK, str(folder / "counts.json"), **variables)
    assert done.returncode == 0, done.stderr
    answers: dict[str, Any] = json.loads(done.stdout)
    return answers


def test_a_device_is_always_named_as_emulated(library: Library, tmp_path: Path) -> None:
    found = ask(library, tmp_path, NULLGPU_NAME="Tesla T4", NULLGPU_COUNT="2")
    assert (found["init"], found["count"]) == (0, 2)
    assert found["name"] == "Tesla T4 (emulated)"


def test_without_a_description_there_is_no_device(library: Library, tmp_path: Path) -> None:
    found = ask(library, tmp_path)
    assert (found["init"], found["count"]) == (100, 0)


LOAD = """
import ctypes, json, sys
library = ctypes.CDLL("libcuda.so.1")
module = ctypes.c_void_p()
status = library.cuModuleLoadData(ctypes.byref(module), open(sys.argv[1], "rb").read() + bytes(64))
kernel = ctypes.c_void_p()
found = library.cuModuleGetFunction(ctypes.byref(kernel), module, b"one")
library.nullgpu_write(sys.argv[2].encode())
names = [ctypes.c_char_p(), ctypes.c_char_p()]
library.cuGetErrorName(status, ctypes.byref(names[0]))
library.cuGetErrorName(found, ctypes.byref(names[1]))
print(json.dumps([name.value.decode() for name in names] + [json.load(open(sys.argv[2]))]))
"""
CODE = {"one": (8, 8)}
CUBIN = maker.fatbin.compose([maker.fatbin.pack_cubin(maker.make_cubin(120, CODE), 120, b"")])
PTX = maker.make_container("one")
BOUND = maker.make_container("one", target="sm_90a")
PLAIN = maker.make_ptx("one")


@pytest.mark.parametrize(
    ("image", "capability", "driver", "error", "counted"),
    [
        (CUBIN, 120, 12080, "SUCCESS", "fat binary: cubin sm_120"),
        (CUBIN, 121, 12090, "SUCCESS", "fat binary: cubin sm_120"),
        (CUBIN, 90, 12080, "NO_BINARY_FOR_GPU", "fat binary: none"),
        (PTX, 89, 12080, "SUCCESS", "fat binary: cubin sm_89"),
        (PTX, 120, 12080, "SUCCESS", "fat binary: PTX compute_90"),
        (PTX, 120, 12040, "UNSUPPORTED_PTX_VERSION", "fat binary: PTX compute_90"),
        (BOUND, 90, 12080, "SUCCESS", "fat binary: PTX compute_90"),
        (BOUND, 120, 12080, "INVALID_PTX", "fat binary: PTX for other GPUs alone, sm_90a"),
        (maker.make_cubin(120, CODE), 120, 12080, "SUCCESS", "cubin sm_120"),
        (maker.make_cubin(89, CODE), 120, 12080, "NO_BINARY_FOR_GPU", "cubin sm_89"),
        (PLAIN, 120, 12080, "SUCCESS", "PTX sm_90"),
        (maker.make_ptx("one", target="sm_90a"), 120, 12080, "INVALID_PTX", "PTX sm_90a"),
        (maker.make_ptx("one", target="sm_100f"), 103, 12090, "SUCCESS", "PTX sm_100f"),
        (b"no module at all", 120, 12080, "INVALID_IMAGE", ""),
    ],
)
def test_a_module_is_taken_as_a_driver_takes_it(
    library: Library, tmp_path: Path, image: bytes, capability: int, driver: int, error: str, counted: str
) -> None:
    place = tmp_path / "module"
    place.write_bytes(image)
    variables = {"NULLGPU_NAME": "card", "NULLGPU_CAPABILITY": str(capability), "NULLGPU_DRIVER": str(driver)}
    done = run(library, "-c", LOAD, str(place), str(tmp_path / "counts.json"), **variables)
    assert done.returncode == 0, done.stderr
    found, kernel, counts = json.loads(done.stdout)
    taken = error == "SUCCESS"
    assert found == ("CUDA_SUCCESS" if taken else f"CUDA_ERROR_{error}")
    assert kernel == ("CUDA_SUCCESS" if taken else "CUDA_ERROR_INVALID_HANDLE")
    assert counts.get("module", {}) == ({counted: 1} if counted else {})
    assert bool(counts.get("refused")) != taken
