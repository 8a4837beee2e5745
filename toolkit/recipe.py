"""What an environment must hold, before an engine is chosen to make it."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The contents of an image or a virtual environment.

    Attributes:
        tensorflow: version of TensorFlow.
        python: ``X.Y``.
        cuda: CUDA release ``X.Y.Z`` of the component wheels; empty for the CPU set.
        cudnn: cuDNN release ``X.Y.Z``; empty for the CPU set.
        requirements: name of the locked set, a file of docker/requirements without its ending.
        wheel: a wheel of our own to install in place of the published one.
    """

    tensorflow: str
    python: str
    cuda: str = ""
    cudnn: str = ""
    requirements: str = "cpu"
    wheel: Path | None = None

    @property
    def variant(self) -> str:
        """The word that tells it from others: ``cuda-12.6.1``, or the name of a locked set that is for no CUDA."""
        return f"cuda-{self.cuda}" if self.cuda else self.requirements
