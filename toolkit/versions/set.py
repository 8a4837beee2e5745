"""The versions that are chosen together: of TensorFlow, Python and NVIDIA's libraries, and the platform.

A field of :class:`Set` is all that declares one: the option of every command that takes versions follows from it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

NONE = "none"
"""The value of --card and --cuda for the processor."""

FIRST_PLATFORM = "linux/amd64"  # of plans and locks that name none, because there was no other


def _version(title: str, text: str, form: str = "X.Y.Z") -> Any:
    """Declare a version: what sentences call its product, and the help and the form of its option."""
    return field(default="", metadata={"title": title, "help": text, "metavar": form})


@dataclass(frozen=True, kw_only=True)
class Set:
    """Some versions. An empty one is left open; a chosen set without CUDA and cuDNN is for the processor."""

    tensorflow: str = _version("TensorFlow", "Version of TensorFlow.")
    python: str = _version("Python", "Version of Python.", "X.Y")
    cuda: str = _version("CUDA", "CUDA release, exactly; none: for the processor.")
    cudnn: str = _version("cuDNN", "cuDNN release, exactly.")
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
        """Its CUDA, cuDNN and other libraries of NVIDIA alone."""
        return Set(**{name: getattr(self, name) for name in LIBRARIES})

    def without_libraries(self) -> Self:
        """Return these versions with NVIDIA's libraries left open."""
        return replace(self, **dict.fromkeys(LIBRARIES, ""))

    def arguments(self) -> dict[str, str]:
        """Return the arguments of the Dockerfile for these versions, such as ``CUDA_VERSION``."""
        return {f"{name.upper()}_VERSION": value for name, value in self.named().items()}

    def describe_libraries(self) -> str:
        """Return ``CUDA 12.8.1 and cuDNN 9.10.2``; empty for the processor."""
        return " and ".join(f"{TITLES[name]} {version}" for name, version in self.libraries.named().items())

    def describe(self) -> str:
        """Return ``TensorFlow 2.21.0 with CUDA 12.8.1 and cuDNN 9.10.2``, or ``… with the CPU set``."""
        return f"TensorFlow {self.tensorflow} with {self.describe_libraries() or 'the CPU set'}"

    def merge(self, other: "Set") -> Self:
        """Return these versions, with those of another set that it does not leave open in their place."""
        return replace(self, **{name: getattr(other, name) for name in NAMES if getattr(other, name)})

    def keeps(self, asked: "Set") -> bool:
        """Return whether it has the versions that were asked for; the platform does not count."""
        return all(getattr(self, name) == value for name, value in asked.named().items())


OPEN = Set()
"""A set that leaves everything open."""

NAMES = tuple(item.name for item in fields(Set))
DECLARED = {item.name: item.metadata for item in fields(Set) if item.metadata}
TITLES = {name: str(declared["title"]) for name, declared in DECLARED.items()}
VERSIONS = tuple(DECLARED)
"""The names of the versions, in the order of the flags."""

LIBRARIES = VERSIONS[2:]
"""Those of NVIDIA's libraries: of CUDA, and of what has releases of its own beside it."""
