import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from tests.loaded import ROOT
from tests.native import needs_native
from train.native import library
from train.run import conclusion, job
from train.step import runtime

PROGRESS = "train    1s  preparing\x1b[K"
NOTE = "I0000 00:00:1795865114.906410    6207 port.cc:153] oneDNN custom operations are on."
NO_DRIVER = (
    "E external/local_xla/xla/stream_executor/cuda/cuda_platform.cc:51] failed call to cuInit: INTERNAL: CUDA error: "
    "Failed call to cuInit: UNKNOWN ERROR (303)"
)
ERROR = "F0000 00:00:1795865114.906411    6207 cpu_feature_guard.cc:1] TensorFlow was compiled to use AVX instructions."


class Said:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, text: str) -> None:
        self.lines.append(text)


@pytest.mark.parametrize("tf32", [False, True])
def test_tf32_is_what_was_asked_for(tf32: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tf.config.threading, "set_intra_op_parallelism_threads", lambda _: None)
    monkeypatch.setattr(tf.config.threading, "set_inter_op_parallelism_threads", lambda _: None)
    try:
        assert runtime.prepare(2, tf32=tf32)["tf32"] is tf32
        assert tf.config.experimental.tensor_float_32_execution_enabled() is tf32
    finally:
        tf.config.experimental.enable_tensor_float_32_execution(False)


@pytest.mark.parametrize(
    ("note", "level", "shown"),
    [(NOTE, None, f"{ERROR}\n"), (NO_DRIVER, None, f"{ERROR}\n"), (NOTE, "0", f"{NOTE}\n{ERROR}\n")],
)
def test_notes_of_the_start_are_hidden_and_the_last_words_of_a_library_are_not(
    note: str, level: str | None, shown: str, tmp_path: Path
) -> None:
    lines = f"{PROGRESS}{note}\n{ERROR}\n".encode()
    (tmp_path / "tensorflow.py").write_text(f"import os\nos.write(2, {lines!r})\nos.abort()\n")
    variables = {name: value for name, value in os.environ.items() if name != "TF_CPP_MIN_LOG_LEVEL"}
    variables |= {"PYTHONPATH": f"{tmp_path}:{ROOT}"} | ({"TF_CPP_MIN_LOG_LEVEL": level} if level else {})
    code = "from train.step import runtime; runtime.prepare(1)"
    ended = subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (-signal.SIGABRT, f"{PROGRESS}{shown}")


@pytest.mark.parametrize("name", runtime.RECORDED)
def test_a_run_that_goes_on_with_something_else_says_so(name: str) -> None:
    before = dict.fromkeys(runtime.RECORDED, "one")
    said: Any = Said()
    job._note_changes(before, before, said)
    assert said.lines == []
    job._note_changes(before, before | {name: "two"}, said)
    assert len(said.lines) == 1
    assert said.lines[0].startswith(f"note: {name} was one, is two")


PLUGIN = """
#include <cstdio>
#include <cstdlib>
static int loaded = std::fclose(std::fopen(std::getenv("MARK"), "w"));
"""
ASK = """
import h5py
from h5py import h5p, h5z
h5p.create(h5p.DATASET_CREATE).set_filter(32015, h5z.FLAG_OPTIONAL, ())
"""


@needs_native
@pytest.mark.slow
def test_the_job_loads_no_plugins_of_hdf5(tmp_path: Path) -> None:
    (tmp_path / "plugin.cc").write_text(PLUGIN)
    built = tmp_path / "libplugin.so"
    subprocess.run([library.find_compiler(), "-shared", "-fPIC", "-o", built, tmp_path / "plugin.cc"], check=True)
    mark = tmp_path / "loaded"
    usual = {
        name: value for name, value in os.environ.items() if name != "HDF5_PLUGIN_PRELOAD"
    }  # which is for the process
    prepared = "from train.step import runtime\nruntime.prepare(1)\n"
    for before, loads in (("", True), (prepared, False)):
        mark.unlink(missing_ok=True)
        variables = {**usual, "MARK": str(mark), "HDF5_PLUGIN_PATH": str(tmp_path), "PYTHONPATH": str(ROOT)}
        subprocess.run([sys.executable, "-c", before + ASK], env=variables, capture_output=True, check=True)
        assert mark.exists() is loads


@pytest.mark.parametrize(
    ("build", "cuda", "cudnn"),
    [
        pytest.param({"cuda_version": "12.5.1", "cudnn_version": "9"}, "12.8.90", "9.10.2.21", id="CUDA 12"),
        pytest.param({"cuda_version": "13.1.0", "cudnn_version": "9"}, "13.0.48", "9.10.2.21", id="CUDA 13"),
        pytest.param({"cuda_version": "14.0.0", "cudnn_version": "10"}, "14.0.0", "10", id="none of them"),
    ],
)
def test_the_packages_of_the_cuda_of_the_build_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, build: dict[str, str], cuda: str, cudnn: str
) -> None:
    there = {"nvidia-cuda-runtime-cu12": "12.8.90", "nvidia-cuda-runtime": "13.0.48", "nvidia-cudnn-cu13": "9.10.2.21"}
    for name, version in there.items():
        info = tmp_path / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    found = runtime.describe_libraries(build)
    assert (found["cuda"], found["cudnn"]) == (cuda, cudnn)
    assert there.items() <= conclusion.describe_software().items()
