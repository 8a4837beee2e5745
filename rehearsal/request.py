import dataclasses
import difflib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from train.config.configuration import TrainConfig
from train.config.presets import read_table
from train.errors import UsageError
from train.record.reader import MARK

DRIVER: Final = "12.6"
"""CUDA version of the emulated driver, unless the GPU needs a newer one or an option sets another."""


@dataclass(frozen=True, kw_only=True)
class Device:
    """An emulated GPU."""

    name: str
    capability: tuple[int, int]
    multiprocessors: int
    memory: int
    shared: int  # largest shared memory of a block, in bytes
    threads: int  # threads, blocks: the most that a multiprocessor holds at a time
    blocks: int
    driver: tuple[int, int]  # newest CUDA of the driver
    count: int = 1


def read_devices() -> dict[str, Any]:
    return read_table("devices", Path(__file__).parent)


def choose_device(name: str, *, driver: str = "", memory: float = 0.0, capability: str = "", count: int = 1) -> Device:
    """Return a device by its short name, with the given changes: versions as ``X.Y``, memory in gigabytes."""
    table = read_devices()
    key = name.lower().replace(" ", "").replace("-", "")
    if key not in table:
        near = difflib.get_close_matches(key, table, n=1, cutoff=0.4)
        raise UsageError(
            f"unknown GPU: {name!r}",
            why=f"known are {', '.join(table)}",
            remedy=f"did you mean {near[0]}?" if near else "",
        )
    if memory < 0 or count not in {1, 2}:
        raise UsageError(
            f"no such device: {memory:g} GB of memory, {count} devices",
            remedy="give --memory a positive number, and --gpus 1 or 2",
        )
    facts = table[key]
    return Device(
        **{name: facts[name] for name in ("multiprocessors", "shared", "threads", "blocks")},
        name=f"{facts['name']} {MARK}",
        capability=_read_version(capability or facts["capability"]),
        memory=int(memory * 1e9) or facts["memory"],
        driver=_read_version(driver or facts.get("driver", DRIVER)),
        count=count,
    )


def _read_version(text: str) -> tuple[int, int]:
    major, dot, minor = text.partition(".")
    if not (dot and major.isdecimal() and minor.isdecimal()) or int(minor) > 9:
        raise UsageError(f"not a version: {text!r}", remedy="write it as X.Y, for example 7.5 or 12.6")
    return int(major), int(minor)


SYNTHETIC: Final = "synthetic"
"""Name of a data set without data. The command line gives the shape of its images."""

_EXAMPLES: Final = 1024
"""Training examples of `SYNTHETIC`. Other data sets keep their number, which decides if they fit the device."""


def register_synthetic(shape: str, classes: int) -> None:
    """Add `SYNTHETIC` to the data sets of this process, with images of a shape such as ``224x224x3``."""
    parts = shape.split("x")
    if len(parts) != 3 or not all(part.isdecimal() and int(part) for part in parts) or classes < 2:
        raise UsageError(
            f"not a data shape: {shape!r} with {classes} classes",
            remedy="write it as HEIGHTxWIDTHxCHANNELS, for example --shape 224x224x3 --classes 1000",
        )
    height, width, channels = (int(part) for part in parts)
    small = height < 32
    read_table("datasets")[SYNTHETIC] = {
        "shape": [height, width, channels],
        "classes": classes,
        "examples": _EXAMPLES,
        "model": "bc-22-12" if small else "121" if height >= 64 else "bc-100-12",
        "recipe": "quick",
        "epochs": {"paper": 1, "quick": 1, "adam": 1},
        "augment": True,
        "pad": height // 8,
        "flip": True,
    }


@dataclass(frozen=True, kw_only=True)
class Request:
    """A rehearsal. Only the `measured` steps are counted: in those of the `warmup`, graphs are built and compiled."""

    config: TrainConfig
    device: Device
    warmup: int = 2
    measured: int = 3
    find_batch: bool = False
    machine_code: bool = False  # whether each of TensorFlow's own kernels must have machine code for the device
    shape: str = ""
    classes: int = 10

    @property
    def steps(self) -> int:
        """Steps of the job. It needs one more, because the counts of a step are read when the next one begins."""
        return self.warmup + self.measured + 1

    def write(self) -> str:
        return json.dumps(dataclasses.asdict(self) | {"config": self.config.as_dict()})

    @classmethod
    def read(cls, text: str) -> "Request":
        values: dict[str, Any] = json.loads(text)
        if values["shape"]:
            register_synthetic(values["shape"], values["classes"])
        device = values["device"]
        for name in ("capability", "driver"):
            device[name] = tuple(device[name])
        return cls(**values | {"config": TrainConfig.from_dict(values["config"]), "device": Device(**device)})
