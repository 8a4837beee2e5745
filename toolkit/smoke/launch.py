"""Launches the checks in an environment and reads their report."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from toolkit import digest, files
from toolkit.engine import Engine, Environment, Job, Mount
from toolkit.errors import CheckError

INSIDE = Path(__file__).parent / "inside"
DEADLINE_SECONDS = 900
"""For all checks together; each has its own, shorter deadline inside."""


@dataclass(frozen=True, kw_only=True)
class Expectation:
    """What the checks must find; an empty value is not checked.

    Attributes:
        version: of TensorFlow.
        cuda: CUDA release as loaded.
        cudnn: cuDNN release as loaded.
        capability: compute capability, of the build and of the device.
        device: ``auto``, ``cpu`` or ``gpu``; ``gpu`` makes a missing GPU a failure.
    """

    version: str = ""
    cuda: str = ""
    cudnn: str = ""
    capability: str = ""
    device: str = "auto"


def plan(expected: Expectation, *, gpu: bool) -> Job:
    """The job: the checks' folder mounted read-only, no network, and what to expect."""
    inside = Mount(source=INSIDE, target="/opt/toolkit/inside")
    argv: list[str | Mount] = [inside, "--json", "--device", expected.device]
    for option, value in (
        ("--expect-version", expected.version),
        ("--expect-cuda", expected.cuda),
        ("--expect-cudnn", expected.cudnn),
        ("--expect-capability", expected.capability),
    ):
        argv += [option, value] if value else []
    return Job(title="smoke", argv=tuple(argv), mounts=(inside,), gpu=gpu, capture=True, deadline=DEADLINE_SECONDS)


def key(environment: Environment, expected: Expectation) -> str:
    """Digest of all that decides the outcome: the environment, the checks, the expectation."""
    return digest.digest_value([environment.digest, digest.digest_paths(INSIDE, [INSIDE]), asdict(expected)])
