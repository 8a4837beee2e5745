import ctypes
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.unit.smoke.conftest import Compiler, Site
from toolkit.checks import device
from toolkit.checks.check import Expectation, Fail

GPU = Expectation(device="gpu")
without_gpu = pytest.mark.skipif(any(Path("/dev").glob("nvidia*")), reason="this machine has a GPU")

CUDA_DRIVER = """
int cuInit(unsigned flags) { return %(init)d; }
int cuDriverGetVersion(int *version) { *version = %(version)d; return 0; }
int cuDeviceGetCount(int *count) { *count = %(count)d; return 0; }
"""


def make_driver(gcc: Compiler, folder: Path, *, init: int = 0, version: int = 12060, count: int = 1) -> ctypes.CDLL:
    file = folder / f"libcuda-{init}-{version}-{count}.so.1"
    file.write_bytes(gcc(CUDA_DRIVER % {"init": init, "version": version, "count": count}))
    return ctypes.CDLL(str(file))


def hide_gpus(site: Site) -> None:
    site.module.config = SimpleNamespace(list_physical_devices=lambda kind: [])


@without_gpu
def test_an_asked_gpu_that_is_missing_fails_with_its_causes(site: Site) -> None:
    with pytest.raises(Fail, match=r"no /dev/nvidia\* device") as caught:
        device.driver(GPU)
    assert "--gpus all" in caught.value.remedy


@pytest.mark.parametrize(
    ("state", "why", "remedy"),
    [
        ({"init": 100}, "cuInit returned error 100, CUDA_ERROR_NO_DEVICE", "--gpus all"),
        ({"init": 803}, "cuInit returned error 803, CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "--id driver-mismatch"),
        ({"init": 804}, "cuInit returned error 804", "compat folder"),
        ({"init": 999}, "cuInit returned error 999", "nvidia_uvm"),
        ({"init": 1}, "cuInit returned error 1", "nvidia-smi"),
        ({"count": 0}, "the driver lists no device", "CUDA_VISIBLE_DEVICES"),
        ({"version": 11080}, "the driver is for CUDA 11.8, TensorFlow was built for 12", "newer NVIDIA driver"),
    ],
)
def test_a_driver_that_cannot_serve_is_told(
    site: Site, gcc: Compiler, tmp_path: Path, state: dict[str, int], why: str, remedy: str
) -> None:
    _, wrong = device.ask_driver(make_driver(gcc, tmp_path, **state))
    assert any(why in cause.text for cause in wrong)
    assert remedy in wrong[0].remedy


@without_gpu
def test_unseen_gpu_names_every_cause(cuda_site: Site) -> None:
    hide_gpus(cuda_site)
    (cuda_site.root / "nvidia/cudnn/lib/libcudnn.so.9").unlink()
    with pytest.raises(Fail) as caught:
        device.visible(GPU)
    text = str(caught.value)
    assert "no /dev/nvidia*" in text
    assert "1 of 19 libraries do not load: libcudnn.so.9" in text


def test_a_gpu_that_lacks_a_library_alone_is_not_told_to_start_another_container(
    cuda_site: Site, gcc: Compiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hide_gpus(cuda_site)
    (tmp_path / "libcuda.so.1").write_bytes(gcc(CUDA_DRIVER % {"init": 0, "version": 12060, "count": 1}))
    monkeypatch.setattr(device.libraries, "DRIVER", str(tmp_path / "libcuda.so.1"))
    monkeypatch.setattr(device, "find_nodes", lambda: ["/dev/nvidia0"])
    (cuda_site.root / "nvidia/cudnn/lib/libcudnn.so.9").unlink()
    with pytest.raises(Fail) as caught:
        device.visible(GPU)
    assert "nvidia-cudnn-cu12" in caught.value.remedy


def test_a_driver_that_windows_did_not_pass_on_is_told(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device.libraries, "DRIVER", "libabsent.so.1")
    monkeypatch.setattr(device, "find_nodes", lambda: ["/dev/dxg"])
    with pytest.raises(Fail) as caught:
        device.driver(GPU)
    assert "/usr/lib/wsl/lib" in caught.value.remedy


def test_a_processor_without_avx_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setattr(device, "read_flags", lambda: frozenset({"sse4_2"}))
    with pytest.raises(Fail, match="lacks avx"):
        device.instructions(Expectation())


def test_a_gpu_that_tensorflow_does_not_see_fails_unasked(cuda_site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "find_nodes", lambda: ["/dev/nvidia0"])
    hide_gpus(cuda_site)
    with pytest.raises(Fail, match="TensorFlow sees no GPU"):
        device.visible(Expectation())
