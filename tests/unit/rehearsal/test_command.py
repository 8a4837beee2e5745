import subprocess
import sys
from pathlib import Path

import pytest

from rehearsal import cli, job, library
from rehearsal.cli import main, read
from rehearsal.request import Request, choose_device
from train.errors import PreflightError


def test_options_of_the_rehearsal_and_of_the_job_are_told_apart() -> None:
    request = read(["cifar10", "--gpu", "p100", "--memory", "plain", "--gpu-memory", "4", "--no-find-batch"]).request
    assert request.device.name == "Tesla P100-PCIE-16GB (emulated)"
    assert request.device.memory == 4_000_000_000
    assert request.config.memory == "plain"
    assert not request.find_batch


def test_a_rehearsal_is_of_stock_kernels() -> None:
    assert read(["digits"]).request.config.kernels == "stock"


def test_a_request_survives_being_written() -> None:
    for words in (["digits", "--depth", "10"], ["synthetic", "--shape", "64x64x3", "--classes", "7"]):
        request = read(words).request
        assert Request.read(request.write()) == request


def test_synthetic_data_has_the_shape_asked_for() -> None:
    config = read(["synthetic", "--shape", "64x48x3", "--classes", "7", "--model", "121"]).request.config
    assert (config.shape, config.classes) == ((64, 48, 3), 7)
    data = job.make_loader(6)(config)
    assert data.train.images.shape[1:] == (64, 48, 3)
    assert len(data.train) >= 7 * config.batch_size
    assert data.train.labels.max() == 6


@pytest.mark.parametrize(
    "words",
    [
        ["digits", "--gpu", "voodoo"],
        ["digits", "--batch-size", "auto"],
        ["digits", "--kernels", "native"],
        ["digits", "--measured", "1"],
        ["digits", "--no-such-option"],
        ["synthetic", "--shape", "224"],
        ["nothing"],
    ],
)
def test_wrong_usage_is_exit_code_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    assert capsys.readouterr().err.startswith("error: ")


def test_a_cpu_build_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["digits"]) == 4
    assert "is not a CUDA build" in capsys.readouterr().err


def test_a_missing_compiler_is_one_clear_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(PreflightError, match="there is no C compiler") as caught:
        library.build(tmp_path, tmp_path / "cache")
    assert "apt-get install gcc" in caught.value.remedy
    assert not (tmp_path / "cache").exists()


def test_the_libraries_come_first_and_the_device_is_described(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", "/before")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    made = cli.make_environment(choose_device("t4", driver="11.8", count=2), Path("/library"), tmp_path / "tensorflow")
    assert made["LD_LIBRARY_PATH"] == "/library:/before"
    assert made["NULLGPU_NAME"] == "Tesla T4"
    assert (made["NULLGPU_CAPABILITY"], made["NULLGPU_DRIVER"], made["NULLGPU_COUNT"]) == ("75", "11080", "2")
    assert "CUDA_VISIBLE_DEVICES" not in made


def test_counts_between_two_readings() -> None:
    before = {"launch": {"device 0": 5}, "copy": {"to host 4": 1}}
    after = {"launch": {"device 0": 8}, "copy": {"to host 4": 1, "to device 4": 2}}
    assert job.subtract_counts(after, before) == {"launch": {"device 0": 3}, "copy": {"to device 4": 2}}


def test_help_needs_no_tensorflow() -> None:
    code = "import sys\nfrom rehearsal.cli import read\nread(['digits'])\nsys.exit('tensorflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
