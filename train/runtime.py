"""TensorFlow, set up so that two runs give the same bits: pinned threads and deterministic operations."""

import os
import platform
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from train import emulation
from train.config import TrainConfig
from train.cores import count_cores

FLAGS: Final = (
    "CUBLAS_",
    "CUDNN_",
    "DNNL_",
    "NVIDIA_TF32_OVERRIDE",
    "ONEDNN_",
    "TF_CUDNN_",
    "TF_ENABLE_",
    "TF_XLA_",
    "XLA_",
)
"""How names of environment variables begin that choose among kernels, and so decide the last bits."""


RECORDED: Final = ("threads", "devices", "tensorflow", "tf32", "numpy", "cuda", "cudnn", "driver", "flags")
"""What `prepare` returns: a run that goes on with another value of one of these may differ in its last bits."""


def prepare(threads: int, *, tf32: bool = False) -> dict[str, Any]:
    """Load TensorFlow and pin what decides its last bits; call it once, before anything else of TensorFlow.

    Args:
        threads: threads inside an operation. Sums are split among them, so their number changes the rounding.
        tf32: let GPUs round the factors of float32 products to 10 bits of mantissa, which is TensorFlow's own default
            on GPUs of compute capability 8.0 and later. Others ignore it.

    Returns:
        What the bits depend on besides the configuration, to be recorded with the run.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)
    tf.config.experimental.enable_op_determinism()
    graphics = tf.config.list_physical_devices("GPU")
    emulation.refuse(list_devices() if graphics else [])
    tf.config.experimental.enable_tensor_float_32_execution(tf32)
    if graphics:
        # The network is laid out for the GPU already, see train.model.formulation. Grappler would transpose its maps
        # to channels last and back where most convolutions are float16.
        tf.config.optimizer.set_experimental_options({"layout_optimizer": False})
    for device in graphics:
        tf.config.experimental.set_memory_growth(device, enable=True)
    return {
        "threads": threads,
        "devices": list_devices(),
        "tensorflow": tf.version.VERSION,
        "tf32": tf32,
        **describe_libraries(dict(tf.sysconfig.get_build_info()) if graphics else {}),
        "flags": {name: value for name, value in sorted(os.environ.items()) if name.startswith(FLAGS)},
    }


def describe_libraries(build: dict[str, Any]) -> dict[str, str]:
    """Versions of what computes besides TensorFlow; those of CUDA only where there is a GPU.

    Args:
        build: TensorFlow's own account of the CUDA and cuDNN that it was built for; empty without a GPU.
    """
    found = {"numpy": metadata.version("numpy")}
    if not build:
        return found
    found |= {name: str(build.get(f"{name}_version", "")) for name in ("cuda", "cudnn")}
    for library, package in (("cuda", "nvidia-cuda-runtime-cu12"), ("cudnn", "nvidia-cudnn-cu12")):
        try:
            found[library] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue  # then it is the one of the system, of the version that TensorFlow was built for
    return found | {"driver": read_driver_version()}


def read_device_peak() -> int | None:
    """The most bytes that TensorFlow's allocator has had in use on the first GPU, or None where there is no GPU."""
    import tensorflow as tf

    if not tf.config.list_logical_devices("GPU"):
        return None
    return int(tf.config.experimental.get_memory_info("GPU:0")["peak"])


def read_driver_version(file: Path = Path("/proc/driver/nvidia/version")) -> str:
    """The first line that NVIDIA's kernel module says of itself, or nothing."""
    try:
        return file.read_text(encoding="utf-8").splitlines()[0].strip()
    except (OSError, IndexError):
        return ""


def list_devices() -> list[str]:
    """The processors TensorFlow trains on, by model name."""
    import tensorflow as tf

    graphics = tf.config.list_physical_devices("GPU")
    if graphics:
        return [str(tf.config.experimental.get_device_details(device).get("device_name")) for device in graphics]
    return [_name_cpu()]


def _name_cpu() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:  # noqa: PTH123
            return next(line.split(":", 1)[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def choose_threads(config: TrainConfig, recorded: int | None) -> int:
    """Return the threads of a run: those asked for, else those it began with, else one for each usable core."""
    return config.threads or recorded or count_cores()
