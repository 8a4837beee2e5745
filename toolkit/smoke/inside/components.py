"""The NVIDIA libraries that a CUDA 12 build uses, and the PyPI package that provides each."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Library:
    """One shared object.

    Attributes:
        soname: what is passed to dlopen.
        folder: below ``site-packages/nvidia`` where its wheel puts it.
        package: the PyPI package.
    """

    soname: str
    folder: str
    package: str


def _list(folder: str, package: str, *sonames: str) -> tuple[Library, ...]:
    return tuple(Library(soname, f"{folder}/lib", package) for soname in sonames)


CUDA_12: Final = (
    *_list("cuda_runtime", "nvidia-cuda-runtime-cu12", "libcudart.so.12"),
    *_list("cublas", "nvidia-cublas-cu12", "libcublasLt.so.12", "libcublas.so.12"),
    *_list("nvjitlink", "nvidia-nvjitlink-cu12", "libnvJitLink.so.12"),
    *_list("cuda_nvrtc", "nvidia-cuda-nvrtc-cu12", "libnvrtc.so.12"),
    *_list("cufft", "nvidia-cufft-cu12", "libcufft.so.11"),
    *_list("curand", "nvidia-curand-cu12", "libcurand.so.10"),
    *_list("cusparse", "nvidia-cusparse-cu12", "libcusparse.so.12"),
    *_list("cusolver", "nvidia-cusolver-cu12", "libcusolver.so.11"),
    *_list("cuda_cupti", "nvidia-cuda-cupti-cu12", "libcupti.so.12"),
    *_list("nccl", "nvidia-nccl-cu12", "libnccl.so.2"),
    *_list(
        "cudnn",
        "nvidia-cudnn-cu12",
        "libcudnn.so.9",
        "libcudnn_graph.so.9",
        "libcudnn_ops.so.9",
        "libcudnn_cnn.so.9",
        "libcudnn_adv.so.9",
        "libcudnn_heuristic.so.9",
        "libcudnn_engines_precompiled.so.9",
        "libcudnn_engines_runtime_compiled.so.9",
    ),
)
"""In an order in which each library's own needs come before it. The numbers are NVIDIA's, as in the wheels' files."""

OPENED: Final = (
    "libcudart.so.12",
    "libcublas.so.12",
    "libcublasLt.so.12",
    "libcufft.so.11",
    "libcusolver.so.11",
    "libcusparse.so.12",
    "libcudnn.so.9",
)
"""What TensorFlow opens by name (``xla/tsl/platform/default/dso_loader.cc``); without one of them it drops all GPUs."""

OPENED_BY_PROFILER: Final = ("libcupti.so.12",)
"""What it opens when it is asked for traces; without it they lack the GPU."""

NVCC_PACKAGE: Final = "nvidia-cuda-nvcc-cu12"
"""The package of ptxas and libdevice."""
