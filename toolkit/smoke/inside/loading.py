"""Bringing in the TensorFlow under test."""

from importlib import import_module
from types import ModuleType
from typing import Any

from .check import Fail


def tensorflow() -> Any:
    """The module under test. Importing it takes seconds the first time."""
    return import_module("tensorflow")


def numpy() -> Any:
    """NumPy, which TensorFlow brings with it."""
    return import_module("numpy")


def require(module: ModuleType, path: str) -> Any:
    """An attribute such as ``sysconfig.get_build_info`` of a module.

    Raises:
        Fail: it is not there, so this is not the TensorFlow that it says it is.
    """
    value: Any = module
    for name in path.split("."):
        value = getattr(value, name, None)
        if value is None:
            raise Fail(
                f"{module.__name__} has no {path}",
                remedy="this is no complete TensorFlow: install the wheel again, or build it again",
                module=str(getattr(module, "__file__", "?")),
            )
    return value


def gpus(tf: Any) -> list[Any]:
    """The GPUs that TensorFlow sees, each set to take memory as it needs it instead of all at once."""
    config = getattr(tf, "config", None)
    if config is None:
        return []
    devices: list[Any] = config.list_physical_devices("GPU")
    for device in devices:
        if not config.experimental.get_memory_growth(device):
            config.experimental.set_memory_growth(device, True)
    return devices
