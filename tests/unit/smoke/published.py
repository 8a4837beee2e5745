from typing import Any

PUBLISHED: dict[str, Any] = {
    "cpu_compiler": "/usr/lib/llvm-18/bin/clang",
    "cuda_compute_capabilities": ["sm_60", "sm_70", "sm_80", "sm_89", "compute_90"],
    "cuda_version": "12.5.1",
    "cudnn_version": "9",
    "is_cuda_build": True,
    "is_rocm_build": False,
    "is_tensorrt_build": False,
}
"""Build info of the 2.19.0 GPU wheel."""
