"""Reads what NVIDIA calls its wheels, and where they put what, for each major version of CUDA: ``nvidia.json``."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final


@dataclass(frozen=True)
class Wheel:
    package: str
    folder: str  # below ``site-packages/nvidia``
    libraries: tuple[str, ...]  # sonames; each comes after those that it needs


WHEELS: Final = {
    major: {name: Wheel(item["package"], item["folder"], tuple(item["libraries"])) for name, item in wheels.items()}
    for major, wheels in json.loads(Path(__file__).with_suffix(".json").read_text()).items()
}
"""By major version of CUDA, earliest first, and by component, such as ``cuda-nvcc``."""


def find_wheels(cuda: str) -> Mapping[str, Wheel]:
    """Return the wheels for a release of CUDA by component; none if their names are not known."""
    return WHEELS.get(cuda.partition(".")[0], {})
