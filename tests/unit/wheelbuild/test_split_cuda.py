"""The wheels of CUDA 13 lie in one folder; the proof and link-cuda want one for each part."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.wheelbuild.conftest import SCRIPTS

FILES = {
    "nvidia_cuda_runtime-13.0.48": ("include/cuda.h", "include/cooperative_groups/scan.h", "lib/libcudart.so.13"),
    "nvidia_cuda_cccl-13.0.50": ("include/cccl/nv/target", "include/cccl/cub/cub.cuh", "include/cccl/cub/cccl/x.h"),
    "nvidia_curand-10.4.0.35": ("include/curand.h", "lib/libcurand.so.10"),
    "nvidia_cuda_nvcc-13.0.48": ("bin/ptxas", "bin/nvcc"),
    "nvidia_nvvm-13.0.48": ("nvvm/libdevice/libdevice.10.bc", "bin/cicc"),
    "nvidia_cuda_crt-13.0.48": ("include/crt/host_config.h", 'include/crt/a "quoted", name.h'),
}


def install(site: Path, wheel: str, names: tuple[str, ...]) -> None:
    paths = [f"nvidia/cu13/{name}" for name in names]
    for path in (site / each for each in paths):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(wheel)
    record = site / f"{wheel}.dist-info/RECORD"
    record.parent.mkdir()
    quoted = ['"' + each.replace('"', '""') + '"' if '"' in each else each for each in paths]
    record.write_text("".join(f"{each},sha256=x,1\n" for each in [*quoted, f"{wheel}.dist-info/RECORD"]))


@pytest.fixture
def site(tmp_path: Path) -> Path:
    for wheel, names in FILES.items():
        install(tmp_path / "site", wheel, names)
    return tmp_path / "site"


def split(site: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, SCRIPTS / "split-cuda", site], capture_output=True, text=True, check=False)


def list_files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir())


def test_each_part_gets_the_folder_that_it_has_in_cuda_12(site: Path, tmp_path: Path) -> None:
    assert split(site).returncode == 0
    assert list_files(site / "nvidia") == [
        "cuda_cccl/include/cub/cccl/x.h",
        "cuda_cccl/include/cub/cub.cuh",
        "cuda_cccl/include/nv/target",
        "cuda_nvcc/bin/cicc",
        "cuda_nvcc/bin/nvcc",
        "cuda_nvcc/bin/ptxas",
        'cuda_nvcc/include/crt/a "quoted", name.h',
        "cuda_nvcc/include/crt/host_config.h",
        "cuda_nvcc/nvvm/libdevice/libdevice.10.bc",
        "cuda_runtime/include/cooperative_groups/scan.h",
        "cuda_runtime/include/cuda.h",
        "cuda_runtime/lib/libcudart.so.13",
        "curand/include/curand.h",
        "curand/lib/libcurand.so.10",
    ]
    cuda = tmp_path / "cuda"
    subprocess.run([SCRIPTS / "link-cuda", site, cuda], check=True)
    for name in ("bin/ptxas", "include/nv/target", "include/crt/host_config.h", "nvvm/libdevice/libdevice.10.bc"):
        assert (cuda / name).exists()


def test_the_one_folder_of_a_run_time_is_linked_as_it_is(site: Path, tmp_path: Path) -> None:
    cuda = tmp_path / "cuda"
    subprocess.run([SCRIPTS / "link-cuda", site, cuda], check=True)
    for name in ("bin/ptxas", "lib64/libcudart.so.13", "nvvm/libdevice/libdevice.10.bc"):
        assert (cuda / name).read_text()


def test_a_wheel_that_is_no_part_and_a_file_of_no_wheel_are_refused(site: Path, tmp_path: Path) -> None:
    (site / "nvidia/cu13/include/stray.h").write_text("")
    done = split(site)
    assert done.returncode == 1
    assert "no wheel has" in done.stderr
    assert "include/stray.h in its RECORD" in done.stderr
    other = tmp_path / "other"
    install(other, "nvidia_cublas-13.0.0.19", ("lib/libcublas.so.13",))
    done = split(other)
    assert done.returncode == 1
    assert "nvidia_cublas is no part of the toolchain" in done.stderr
