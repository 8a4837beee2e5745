"""The versions that are chosen together: of TensorFlow, Python, CUDA and cuDNN, and the platform."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Self

NONE = "none"
"""The value of --card and --cuda for the processor."""

FIRST_PLATFORM = "linux/amd64"  # of plans and locks that name none, because there was no other


@dataclass(frozen=True, kw_only=True)
class Set:
    """Some versions. An empty one is left open; a chosen set without CUDA and cuDNN is for the processor."""

    tensorflow: str = ""
    python: str = ""  # ``X.Y``
    cuda: str = ""  # cuda, cudnn: releases ``X.Y.Z``
    cudnn: str = ""
    platform: str = ""  # ``linux/amd64``

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "Set":
        """Return the versions in a mapping of names to values, such as a part of a record. Other names do not count."""
        return Set(**{name: str(values[name]) for name in NAMES if values.get(name)})

    def flags(self) -> tuple[str, ...]:
        """Return the options that ask for these versions, such as ``--cuda 12.8.1``. The first platform needs none."""
        # These flags may be pasted on another machine, so a platform is named even if it is this one's.
        named = {"platform": self.platform if self.platform != FIRST_PLATFORM else "", **self.named()}
        return tuple(f"--{name} {value}" for name, value in named.items() if value)

    def named(self) -> dict[str, str]:
        """Return the versions that are not left open, without the platform."""
        return {name: value for name in VERSIONS if (value := getattr(self, name))}

    @property
    def libraries(self) -> "Set":
        """Its CUDA and cuDNN alone."""
        return Set(cuda=self.cuda, cudnn=self.cudnn)

    def describe(self) -> str:
        """Return ``TensorFlow 2.21.0 with CUDA 12.8.1 and cuDNN 9.10.2``, or ``… with the CPU set``."""
        with_ = f"CUDA {self.cuda} and cuDNN {self.cudnn}" if self.cuda else "the CPU set"
        return f"TensorFlow {self.tensorflow} with {with_}"

    def merge(self, other: "Set") -> Self:
        """Return these versions, with those of another set that it does not leave open in their place."""
        return replace(self, **{name: getattr(other, name) for name in NAMES if getattr(other, name)})

    def keeps(self, asked: "Set") -> bool:
        """Return whether it has the versions that were asked for; the platform does not count."""
        return all(getattr(self, name) == value for name, value in asked.named().items())


OPEN = Set()
"""A set that leaves everything open."""

NAMES = tuple(item.name for item in fields(Set))
VERSIONS = NAMES[:-1]
"""The names of the versions, in the order of the flags."""
