"""Lists the engines that run an image as one file, which they make from an archive of `docker save`.

A new one is a row here and a name in :data:`toolkit.versions.settings.EngineName`.
"""

from collections.abc import Mapping
from typing import Final

from toolkit.base.manifest import Manifest
from toolkit.engine.apptainer import ApptainerEngine
from toolkit.engine.packed_engine import PackedEngine

PACKERS: Final[Mapping[str, type[PackedEngine]]] = {engine.name: engine for engine in (ApptainerEngine,)}


def find_packer(record: Manifest | None) -> type[PackedEngine] | None:
    """Return the engine that made an image; None for one of Docker's, and for what is no image."""
    return PACKERS.get(str(record.facts.get("engine"))) if record and record.kind == "image" else None


def names_packed(reference: str) -> bool:
    """Return whether a reference is the path of such an image, and not a name in Docker."""
    return reference.endswith(tuple(f"/{packer.file}" for packer in PACKERS.values()))
