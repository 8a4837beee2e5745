"""Makes the predicate that is signed of an environment, an image or a run: a SLSA provenance."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from toolkit import manifest
from toolkit.artifacts.origins import flatten
from toolkit.errors import IntegrityError
from toolkit.manifest import Manifest

PLAN: Final = "toolkit-plan-sha256"
"""Algorithm name for the digest of an environment, which is that of its plan and not of a file."""

WEIGHTS: Final = "toolkit-weights-sha256"
"""Algorithm name for :func:`train.record.reader.digest_weights`."""


def describe(
    activity: str, parameters: Mapping[str, Any], parent: Mapping[str, Any] | None, weights: str = ""
) -> dict[str, Any]:
    """Return a SLSA provenance; a parent's digest is that of a file or image, or of an environment's plan."""
    from toolkit.wheel import build_documents  # is slow to load

    links = [
        {
            "name": f"{link.get('kind')} {link.get('name') or link.get('reference')}",
            "digest": {
                PLAN if link.get("kind") == "environment" else "sha256": str(link.get("digest")).removeprefix("sha256:")
            },
        }
        for link in flatten(parent)
    ]
    made = {"byproducts": [{"name": "weights", "digest": {WEIGHTS: weights}}]} if weights else {}
    return {
        "buildDefinition": {
            "buildType": f"urn:x-tensorflow-toolkit:{activity}:v1",
            "externalParameters": dict(parameters),
            "resolvedDependencies": links,
        },
        "runDetails": {"builder": {"id": build_documents.BUILDER}, **made},
    }


def read_record(folder: Path, kind: str) -> Manifest:
    """Return the manifest of a kind. Raises IntegrityError if there is none, or if it is of another kind."""
    record = manifest.read(folder)
    if record is None or record.kind != kind:
        raise IntegrityError(f"{folder} has no manifest of an {kind}", remedy="make it again")
    return record
