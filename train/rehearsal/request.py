"""What is rehearsed: the configuration of a training job, the emulated device, and how long to look."""

import dataclasses
import json
from dataclasses import dataclass
from typing import Any, Final

from train.config import TrainConfig, read_table
from train.errors import UsageError
from train.rehearsal.device import Device

SYNTHETIC: Final = "synthetic"
"""The data set whose shape is given on the command line: any shape, without a data set."""

_EXAMPLES: Final = 1024
"""Training examples of `SYNTHETIC`. The other data sets keep their own number, for some of them live on the device."""


def register_synthetic(shape: str, classes: int) -> None:
    """Make `SYNTHETIC` a data set of this process.

    Args:
        shape: height, width and channels as ``224x224x3``.
        classes: number of classes.

    Raises:
        UsageError: one of them makes no sense.
    """
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
    """A rehearsal.

    Attributes:
        config: the training job.
        device: what the GPU is like.
        warmup: steps that are not counted: the first ones make graphs, compile and choose algorithms.
        measured: steps that are counted, each by itself.
        find_batch: also look for the largest batch that fits.
        shape: height, width and channels of the synthetic data set as ``224x224x3``; empty for a data set's own.
        classes: classes of the synthetic data set.
    """

    config: TrainConfig
    device: Device
    warmup: int = 2
    measured: int = 3
    find_batch: bool = False
    shape: str = ""
    classes: int = 10

    @property
    def steps(self) -> int:
        """Steps that the job takes: a step is over when the next one begins, so there is one more."""
        return self.warmup + self.measured + 1

    def write(self) -> str:
        """Write it as JSON."""
        return json.dumps(dataclasses.asdict(self) | {"config": self.config.as_dict()})

    @classmethod
    def read(cls, text: str) -> "Request":
        """Read what `write` wrote; a synthetic data set is registered in this process."""
        values: dict[str, Any] = json.loads(text)
        if values["shape"]:
            register_synthetic(values["shape"], values["classes"])
        device = values["device"]
        for name in ("capability", "driver"):
            device[name] = tuple(device[name])
        return cls(**values | {"config": TrainConfig.from_dict(values["config"]), "device": Device(**device)})
