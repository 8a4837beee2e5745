"""What is rehearsed: the configuration of a training job, the emulated device, and how long to look."""

import dataclasses
import json
from dataclasses import dataclass
from typing import Any

from train.config import TrainConfig
from train.rehearsal import synthetic
from train.rehearsal.device import Device


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
            synthetic.register(values["shape"], values["classes"])
        device = values["device"]
        for name in ("capability", "driver"):
            device[name] = tuple(device[name])
        return cls(**values | {"config": TrainConfig.from_dict(values["config"]), "device": Device(**device)})
