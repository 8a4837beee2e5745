"""Finds and states what an environment, image or run was made from: a wheel of this machine, or a published one."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from toolkit.base import digest, manifest, naming, project
from toolkit.base.errors import IntegrityError
from toolkit.base.findings import Finding, absent, check
from toolkit.base.manifest import Manifest
from toolkit.base.project import DIST
from toolkit.records.artifact import Link
from toolkit.records.wheel import is_own_wheel

PLAN: Final = "toolkit-plan-sha256"
"""Algorithm name for the digest of an environment, which is that of its plan and not of a file."""

WEIGHTS: Final = "toolkit-weights-sha256"
"""Algorithm name for :func:`train.record.reader.digest_weights`."""


def flatten(parent: Mapping[str, Any] | None) -> list[Mapping[str, Any]]:
    """Return a parent, its own parent, and so on, as a record names them."""
    links = []
    while isinstance(parent, Mapping) and parent:
        links.append(parent)
        parent = parent.get("parent")
    return links


def find_lock(named: Mapping[str, Any]) -> Path | None:
    """Return the locked set of this clone that a record names."""
    sets = sorted(project.locate("docker/requirements").glob("*.txt"))
    return next((path for path in sets if digest.digest_file(path) == named.get("digest")), None)


def list_links(parent: Mapping[str, Any] | None) -> list[Link]:
    """Return the wheels and the locked set that a record names. The locked set has the digest of a published wheel."""
    return [
        Link(kind=str(named.get("kind")), named=named, damaged="origin" if is_own_wheel(named) else "")
        for named in flatten(parent)
    ]


def check_link(link: Link) -> list[Finding]:
    """Return whether a locked set, or the folder of a wheel that was made here, is on this machine."""
    value = f"{link.named.get('name')}: {link.named.get('digest')}"
    if link.kind == "lock":
        path = find_lock(link.named)
        if path:
            return [check("lock", True, f"{path.name} of this clone")]
        return [absent("lock", f"no locked set of this clone has the digest of {value}")]
    if not is_own_wheel(link.named):
        return []
    if link.artifact is None:
        return [absent("origin", f"no wheel in {DIST} has the digest of {value}")]
    return [check("origin", True, str(link.artifact.folder))]


def find_tensorflow(folder: Path) -> str:
    """Return the version of TensorFlow in an environment or image, by the record in a folder.

    Raises IntegrityError if the record says none.
    """
    record = manifest.read(folder)
    labels = record.facts.get("labels", {}) if record else {}
    if version := isinstance(labels, dict) and labels.get(f"{naming.LABEL_PREFIX}.tensorflow"):
        return str(version)
    for named in flatten(record.parent if record else None):
        try:
            return str(parse_wheel_filename(str(named.get("name")))[1])
        except InvalidWheelFilename:
            continue
    raise IntegrityError(f"the record in {folder} does not say which TensorFlow it has", remedy="make it again")


def describe_making(
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
