"""A job that was asked for a GPU and finds none ends before its first step."""

from pathlib import Path
from typing import Any

import pytest

from toolkit.base.errors import list_exit_codes
from toolkit.base.naming import GPU_VARIABLE
from train import cli
from train.errors import GpuError
from train.step import runtime

OPTIONS = ("--epochs", "1", "--kernels", "stock", "--batch-size", "100", "--threads", "2", "--progress", "quiet")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(GPU_VARIABLE, "1")


@pytest.mark.usefixtures("asked")
def test_a_job_without_a_gpu_ends_before_the_first_step(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    import tensorflow as tf

    if tf.config.list_physical_devices("GPU"):
        pytest.skip("this machine has a GPU")
    code = cli.main(["digits", "--out", str(tmp_path), *OPTIONS])
    said = capfd.readouterr().err
    assert code == GpuError.exit_code
    assert code in list_exit_codes()
    assert said.count("error:") == 1
    assert "no code for a GPU" in said
    assert "--cuda" in said
    assert not list(tmp_path.rglob("checkpoints/*"))
    assert not list(tmp_path.rglob("metrics.csv"))


CUDA: dict[str, Any] = {"is_cuda_build": True}


@pytest.mark.usefixtures("asked")
@pytest.mark.parametrize(
    ("build", "visible", "files", "words"),
    [
        ({"is_cuda_build": False}, None, ["nvidia0"], ["built for processors", "--cuda"]),
        (CUDA, "-1", ["nvidia0"], ["CUDA_VISIBLE_DEVICES is '-1'", "unset it"]),
        (CUDA, "", ["nvidia0"], ["CUDA_VISIBLE_DEVICES is ''", "unset it"]),
        (CUDA, None, [], ["no device file", "--gpus all", "--nv"]),
        (CUDA, None, ["nvidia0"], ["driver is too old", "toolkit doctor"]),
        (CUDA, "7", ["dxg"], ["CUDA_VISIBLE_DEVICES is '7'", "toolkit doctor"]),
    ],
)
def test_the_error_names_cause_and_remedy(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    build: dict[str, Any],
    visible: str | None,
    files: list[str],
    words: list[str],
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    for name in files:
        (tmp_path / name).touch()
    with pytest.raises(GpuError) as caught:
        runtime.require_gpu(0, build, tmp_path)
    assert all(word in str(caught.value) for word in words), str(caught.value)
