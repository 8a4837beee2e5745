"""Sets TensorFlow up so that two runs give the same bits: fixed numbers of threads and deterministic operations."""

import gc
import os
import platform
import re
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any, Final, NoReturn

from train.config.configuration import Kernels, TrainConfig
from train.cores import count_cores
from train.errors import GpuError, PreflightError
from train.system import memory

RESIDENT_SHARE: Final = 0.1
"""Share of a GPU's memory that training images may take. Larger data sets stay on the host."""


OPTIONAL: Final = ("sklearn", "matplotlib", "pandas")
"""Packages that Keras imports if they are there. Without them it loads in two thirds of the time."""


REQUIREMENT: Final = "TOOLKIT_REQUIRE_GPU"
"""Environment variable: with any value but 0, the job ends with the exit code of a GpuError if it finds no GPU."""

_PACKAGE: Final = re.compile(r"nvidia-(?:(cuda)-runtime|(cudnn))(?:-cu\d+)?")
_DRIVER_FILES: Final = ("nvidia[0-9]*", "nvidiactl", "dxg", "nvmap")
"""Device files of NVIDIA's drivers: on Linux, in WSL and on a Jetson."""


def require_gpu(count: int, build: Mapping[str, Any], devices: Path = Path("/dev")) -> None:
    """Raise a GpuError with cause and remedy if the job must run on a GPU, and TensorFlow sees none.

    `count` is the number of GPUs that it sees, and `build` is its build information.
    """
    if count or os.environ.get(REQUIREMENT, "0") in {"", "0"}:
        return
    raise GpuError("this job was to run on a GPU, and TensorFlow finds none", **_find_cause(build, devices))


def _find_cause(build: Mapping[str, Any], devices: Path) -> dict[str, str]:
    """Return why TensorFlow sees no GPU, and what the user can do, as parts of an error."""
    if not build.get("is_cuda_build"):
        why = "this TensorFlow is built for processors alone: it has no code for a GPU"
        remedy = "take one for CUDA: give `toolkit` --cuda and --cudnn; `toolkit advise` names those of a card"
        return {"why": why, "remedy": remedy}
    granted = os.environ.get("CUDA_VISIBLE_DEVICES")
    if granted is not None and granted.strip().partition(",")[0] in {"", "-1"}:
        why = f"the environment variable CUDA_VISIBLE_DEVICES is {granted!r}, which hides every GPU"
        return {"why": why, "remedy": "unset it, or write the numbers of the GPUs into it"}
    if not any(True for pattern in _DRIVER_FILES for _ in devices.glob(pattern)):
        return {
            "why": f"NVIDIA's driver has no device file in {devices}",
            "remedy": "on a machine: install or load the driver; in a container: start it with --gpus all and NVIDIA's "
            "container toolkit, in Apptainer with --nv",
        }
    driver = read_driver_version()
    why = (
        "NVIDIA's driver is there, but TensorFlow cannot use it: the driver is too old, or a library of CUDA is missing"
    )
    why += f" (CUDA_VISIBLE_DEVICES is {granted!r})" if granted is not None else ""
    return {
        "why": f"{why}; {driver}" if driver else why,
        "remedy": "`toolkit doctor` compares the driver with CUDA; with TF_CPP_MIN_LOG_LEVEL=0 TensorFlow says more",
    }


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
"""Prefixes of environment variables that affect the choice of kernels, and so the last bits."""


RECORDED: Final = ("threads", "devices", "tensorflow", "tf32", "numpy", "cuda", "cudnn", "driver", "flags")
"""Keys of the result of `prepare`. If one of the values changes, a resumed run may differ in its last bits."""

RECORDED_NATIVE: Final = ("tensorflow", "numpy", "kernels")
"""The same for a run with native kernels, which depends on neither processor nor threads."""


_NOTE: Final = re.compile(
    rb"I\d{4} |WARNING: All log messages before absl::InitializeLog"
    rb"|.*(?:Unable to register cu\w+ factory|[Cc]omputation placer already registered|failed call to cuInit.*\(303\))"
)
"""Lines that say nothing to a user: notes, libraries that TensorFlow registers twice, and that there is no driver."""


@contextmanager
def hiding_notes() -> Iterator[None]:
    """Keep from standard error what TensorFlow says of its start and means nothing.

    Nothing is kept from a caller who has set TF_CPP_MIN_LOG_LEVEL.
    TensorFlow 2.21 writes some before it reads this variable. A process of its own passes on everything else, so that
    the last words of a library that aborts are not lost.
    """
    if "TF_CPP_MIN_LOG_LEVEL" in os.environ or "tensorflow" in sys.modules:
        yield
        return
    source, sink = os.pipe()
    if (child := os.fork()) == 0:
        _pass_on(source, sink)
    os.close(source)
    original = os.dup(2)
    os.dup2(sink, 2)
    os.close(sink)
    try:
        yield
    finally:
        os.dup2(original, 2)
        os.close(original)
        os.waitpid(child, 0)


def _pass_on(source: int, sink: int) -> NoReturn:
    """Copy what is no note to standard error until all who write to the pipe have ended, and end then.

    A line of progress, which ends with the code that erases what is right of it, is passed on at once.
    """
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        os.close(sink)
        rest = b""
        while piece := os.read(source, 1 << 16):
            *lines, rest = re.split(rb"(?<=\n)|(?<=\x1b\[K)", rest + piece)
            os.write(2, b"".join(line for line in lines if not _NOTE.match(line)))
        os.write(2, rest)
    finally:
        os._exit(0)


@hiding_notes()
def prepare(
    threads: int, *, tf32: bool = False, kernels: Kernels = "stock", connect: Callable[[], None] | None = None
) -> dict[str, Any]:
    """Load TensorFlow and fix the settings that change its last bits; call this before any other use of it.

    Returns what the bits depend on besides the configuration. The number of `threads` changes the rounding of sums.
    With `tf32`, GPUs round the factors of float32 products to 10 bits of mantissa, TensorFlow's default from compute
    capability 8.0 on. `connect` is called before TensorFlow makes its devices. Raises a PreflightError if native
    kernels were asked for and cannot run here, and a GpuError if the job must run on a GPU and there is none.
    """
    # TensorFlow also logs what a collective raises.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3" if connect else "2")
    # TensorFlow loads HDF5, which otherwise loads plugins from a folder (CVE-2026-2492); `::` is its word for none.
    os.environ.setdefault("HDF5_PLUGIN_PRELOAD", "::")
    if kernels == "native":
        memory.keep_freed()
    with hiding_optional_packages(), pausing_collection():
        import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)
    tf.config.experimental.enable_op_determinism()
    graphics = tf.config.list_physical_devices("GPU")
    require_gpu(len(graphics), tf.sysconfig.get_build_info())
    tf.config.experimental.enable_tensor_float_32_execution(tf32)
    if graphics:
        # The network already has the GPU's layout, see train.model.formulation. If most convolutions are float16,
        # Grappler would transpose the maps to channels last and back.
        tf.config.optimizer.set_experimental_options({"layout_optimizer": False})
    for device in graphics:
        tf.config.experimental.set_memory_growth(device, enable=True)
    if connect:
        connect()
    native = _prepare_native(threads, graphics=bool(graphics)) if kernels == "native" else {}
    return {
        "threads": threads,
        "devices": list_devices(),
        "tensorflow": tf.version.VERSION,
        "tf32": tf32,
        **describe_libraries(dict(tf.sysconfig.get_build_info()) if graphics else {}),
        "flags": {name: value for name, value in sorted(os.environ.items()) if name.startswith(FLAGS)},
        **native,
    }


@contextmanager
def pausing_collection() -> Iterator[None]:
    """Import what lives until the end, such as TensorFlow, without the collector of cyclic garbage.

    TensorFlow's import makes 660,000 objects. To search them for garbage takes a fifth of its time, and as long again
    when the process ends, unless they are frozen.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()


@contextmanager
def hiding_optional_packages() -> Iterator[None]:
    """While the block imports Keras, make it believe that the `OPTIONAL` packages are missing.

    No other thread may import them meanwhile.
    """
    hidden = [name for name in OPTIONAL if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]  # None: the import fails
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]


def _prepare_native(threads: int, *, graphics: bool) -> dict[str, Any]:
    from train.native import library, operations

    if graphics:
        raise PreflightError(
            "native kernels run on CPUs, and TensorFlow trains on a GPU here",
            remedy="use --kernels stock, or hide the GPU by CUDA_VISIBLE_DEVICES=-1",
        )
    operations.set_threads(threads)
    built = library.find()
    return {"kernels": built.source_sha256, "instructions": built.instructions, "compiler": built.origin}


def describe_libraries(build: dict[str, Any]) -> dict[str, str]:
    """Return the versions of NumPy and, with a GPU, of driver, CUDA and cuDNN, by TensorFlow's build information."""
    versions = {"numpy": metadata.version("numpy")}
    if not build:
        return versions
    versions |= {name: str(build.get(f"{name}_version", "")) for name in ("cuda", "cudnn")}
    built = {name: version.partition(".")[0] for name, version in versions.items()}
    for package in metadata.distributions():
        match = _PACKAGE.fullmatch(str(package.name).replace("_", "-"))
        # One of another major version is for another framework. The system's library has the version of the build.
        if match and package.version.startswith(built[library := match[1] or match[2]]):
            versions[library] = package.version
    return versions | {"driver": read_driver_version()}


def read_device_peak() -> int | None:
    """Return the peak memory in bytes that TensorFlow has used on the first GPU; None without a GPU."""
    import tensorflow as tf

    if not tf.config.list_logical_devices("GPU"):
        return None
    return int(tf.config.experimental.get_memory_info("GPU:0")["peak"])


def read_device_limit() -> int:
    """Return the memory in bytes that TensorFlow may use on the smallest GPU; 0 without a GPU."""
    from tensorflow.python.client import device_lib

    limits = [device.memory_limit for device in device_lib.list_local_devices() if device.device_type == "GPU"]
    return min(limits, default=0)


def fits_device(images: int, memory: int) -> bool:
    return images <= RESIDENT_SHARE * memory


def read_driver_version(file: Path = Path("/proc/driver/nvidia/version")) -> str:
    try:
        return file.read_text(encoding="utf-8").splitlines()[0].strip()
    except (OSError, IndexError):
        return ""


def list_devices() -> list[str]:
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
    return config.threads or recorded or count_cores()
