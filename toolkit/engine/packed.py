"""Lists the engines that run an image as one file, which they make from an archive of `docker save`.

A new one is a row here and a name in :data:`toolkit.versions.settings.EngineName`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from toolkit.base.manifest import Manifest
from toolkit.engine import Engine, Environment, apptainer
from toolkit.engine.custody import Custody


@dataclass(frozen=True, kw_only=True)
class Packer:
    file: str  # name of the image in the folder of its record, which has the digest of its bytes as ``file``
    make: Callable[[Path, str], Engine]  # from the state folder, and the path of an archive or an empty text
    find: Callable[[Path], Environment | None]  # the complete image in a folder
    examine: Callable[[Path, str], Custody]  # whether the image in a folder, of this digest, may be used
    find_version: Callable[[], str]  # raises EngineError if its program does not run here


PACKERS: Final[Mapping[str, Packer]] = {
    apptainer.ApptainerEngine.name: Packer(
        file=apptainer.SIF,
        make=apptainer.ApptainerEngine,
        find=apptainer.find,
        examine=apptainer.examine,
        find_version=apptainer.find_version,
    ),
}


def find_packer(record: Manifest | None) -> Packer | None:
    """Return the engine that made an image; None for one of Docker's, and for what is no image."""
    return PACKERS.get(str(record.facts.get("engine"))) if record and record.kind == "image" else None


def names_packed(reference: str) -> bool:
    """Return whether a reference is the path of such an image, and not a name in Docker."""
    return reference.endswith(tuple(f"/{packer.file}" for packer in PACKERS.values()))
