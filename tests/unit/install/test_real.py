"""TensorFlow itself in a new environment, from the index that pip is configured for."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.command import Run
from toolkit.engine.uv import Uv

PROGRAM = """
import numpy as np
import tensorflow as tf

model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(np.ones((8, 2), "float32"), np.ones(8, "float32"), verbose=0)
print(tf.__version__, model.count_params())
"""


@pytest.mark.weekly
@pytest.mark.timeout(900)
def test_a_program_of_the_user_runs_in_a_new_environment(tmp_path: Path) -> None:
    run = Run(tmp_path)
    done = run("install", "--into", "mine", "--card", "none", "--json")
    assert done.returncode == 0, done.stderr
    value = json.loads(done.stdout)
    assert value["smoke"]["verdict"] == "pass"
    (tmp_path / "program.py").write_text(PROGRAM)
    said = subprocess.run(
        [value["program"], "program.py"], cwd=tmp_path, capture_output=True, text=True, check=True
    ).stdout.split()
    assert said == [value["tensorflow"], "3"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine", "program.py"]


def fill(run: Run, *packages: str) -> Path:
    """Make an environment as its owner does, from the package index."""
    folder = run.folder / "mine"
    Uv().run("venv", "--no-project", "--python", sys.executable, folder)
    Uv().run("pip", "install", "--python", folder / "bin" / "python", *packages)
    return folder


def ask(folder: Path, code: str) -> str:
    return subprocess.run([folder / "bin" / "python", "-c", code], capture_output=True, text=True, check=True).stdout


@pytest.mark.weekly
@pytest.mark.timeout(1800)
def test_what_pip_has_installed_is_corrected_in_one_file(run: Run) -> None:
    folder = fill(run, "tensorflow[and-cuda]==2.21.0")
    (library,) = folder.glob("lib/python3.*/site-packages/tensorflow/libtensorflow_framework.so.2")
    done = run("install", "--into", "mine", "--card", "RTX 3090", "--json")
    assert done.returncode == 0, done.stderr
    value = json.loads(done.stdout)
    assert value["changes"] == {
        "added": {},
        "changed": {},
        "removed": {},
        "broken": [],
        "kept": value["changes"]["kept"],
    }
    assert value["smoke"]["verdict"] == "pass"
    corrected = library.stat().st_ino
    assert run("install", "--into", "mine", "--undo").returncode == 0
    assert library.stat().st_ino != corrected
    assert run("smoke", "--environment", "mine").returncode == 7


@pytest.mark.weekly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("packages", "program"),
    [
        (("torch==2.9.1",), "import torch; print(torch.backends.cudnn.version())"),
        (("jax[cuda12]==0.10.2",), "import jax; print(jax.numpy.ones(3).sum())"),
    ],
    ids=["torch for CUDA 12", "JAX for CUDA 12"],
)
def test_a_framework_for_the_same_cuda_works_on(run: Run, packages: tuple[str, ...], program: str) -> None:
    folder = fill(run, *packages)
    before = ask(folder, program)
    done = run("install", "--into", "mine", "--card", "RTX 3090", "--yes")
    assert done.returncode == 0, done.stderr
    assert ask(folder, program) == before


@pytest.mark.weekly
@pytest.mark.timeout(1800)
def test_a_torch_for_another_cuda_is_left_alone(run: Run) -> None:
    folder, program = (
        fill(run, "torch==2.14.1"),
        "import torch; print(torch.version.cuda, torch.backends.cudnn.version())",
    )
    (library,) = folder.glob("lib/python3.*/site-packages/nvidia/nccl/lib/libnccl.so.2")
    before, said = _describe(library), ask(folder, program)
    done = run("install", "--into", "mine", "--card", "RTX 3090", "--yes")
    assert (done.returncode, said.split()[0]) == (3, "13.0")
    assert "they have the same files" in done.stderr
    assert (_describe(library), ask(folder, program)) == (before, said)


def _describe(file: Path) -> tuple[int, int, int]:
    status = file.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns
