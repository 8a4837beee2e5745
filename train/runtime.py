"""TensorFlow, set up so that two runs give the same bits: pinned threads and deterministic operations."""

import os
import platform
from typing import Any

from train.config import TrainConfig


def count_cores() -> int:
    """Cores this process may use, which in a container can be fewer than the machine has."""
    return len(os.sched_getaffinity(0))


def prepare(threads: int) -> dict[str, Any]:
    """Load TensorFlow and pin what decides its last bits; call it once, before anything else of TensorFlow.

    Args:
        threads: threads inside an operation. Sums are split among them, so their number changes the rounding.

    Returns:
        What the bits depend on besides the configuration, to be recorded with the run.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)
    tf.config.experimental.enable_op_determinism()
    for device in tf.config.list_physical_devices("GPU"):
        tf.config.experimental.set_memory_growth(device, enable=True)
    return {"threads": threads, "devices": list_devices(), "tensorflow": tf.version.VERSION}


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
    """Threads of a run: what was asked for, else what the run began with, else one a core."""
    return config.threads or recorded or count_cores()
