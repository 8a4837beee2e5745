"""Describes an emulated GPU, as the emulated libraries read it while TensorFlow is loaded."""

import os
from pathlib import Path
from typing import Any

import yaml

DEVICES: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("devices.yaml").read_text(encoding="utf-8"))


def make_environment(
    name: str, library: Path, tensorflow: Path, *, driver: str = "", memory: float = 0, capability: str = ""
) -> dict[str, str]:
    """Return the variables of a process that sees a device of `DEVICES`, with changes: versions ``X.Y``, gigabytes."""
    facts = DEVICES[name]
    major, minor = map(int, (driver or facts["driver"]).split("."))
    variables = {
        **os.environ,
        "NULLGPU_NAME": facts["name"],
        "NULLGPU_CAPABILITY": (capability or facts["capability"]).replace(".", ""),
        "NULLGPU_MULTIPROCESSORS": str(facts["multiprocessors"]),
        "NULLGPU_MEMORY": str(int(memory * 1e9) or facts["memory"]),
        "NULLGPU_SHARED": str(facts["shared"]),
        "NULLGPU_THREADS": str(facts["threads"]),
        "NULLGPU_BLOCKS": str(facts["blocks"]),
        "NULLGPU_DRIVER": str(1000 * major + 10 * minor),
        "NULLGPU_COUNT": "1",
        "LD_LIBRARY_PATH": os.pathsep.join(filter(None, [str(library), os.environ.get("LD_LIBRARY_PATH")])),
        "TF_CPP_MIN_LOG_LEVEL": "0",
        # XLA takes ptxas and libdevice from this folder. The first ptxas on PATH may belong to another CUDA.
        "XLA_FLAGS": f"--xla_gpu_cuda_data_dir={tensorflow.parent / 'nvidia' / 'cuda_nvcc'}",
    }
    variables.pop("CUDA_VISIBLE_DEVICES", None)
    return variables
