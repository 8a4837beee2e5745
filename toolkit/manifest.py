"""The record beside each artifact: what it is, and the digest of the one that it was made from.

wheel → environment or image → run: each manifest names its parent, so a run leads back to the lock.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from toolkit import files

SCHEMA = 1
FILE = "manifest.json"
PUBLISHED = frozenset({"tensorflow", "tensorflow-cpu"})
"""Names under which TensorFlow is published: with and without CUDA."""


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """One artifact.

    Attributes:
        kind: ``wheel``, ``environment``, ``image`` or ``run``.
        digest: content digest.
        parent: the manifest of what it was made from, in short: kind, digest and name.
        facts: whatever else is worth keeping.
    """

    kind: str
    digest: str
    parent: Mapping[str, Any] | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)

    def describe(self) -> dict[str, Any]:
        """As it is written."""
        return {
            "schema": SCHEMA,
            "kind": self.kind,
            "digest": self.digest,
            "parent": dict(self.parent) if self.parent else None,
            "facts": dict(self.facts),
        }


def write(folder: Path, manifest: Manifest) -> None:
    """Write ``manifest.json`` into a folder, last of all: a folder that has one is complete."""
    files.write_json(folder / FILE, manifest.describe())


def read(folder: Path) -> Manifest | None:
    """The manifest of a folder, or None where there is no whole one of this schema."""
    value = files.read_json(folder / FILE)
    if not isinstance(value, dict) or value.get("schema") != SCHEMA or not {"kind", "digest"} <= value.keys():
        return None
    return Manifest(
        kind=value["kind"], digest=value["digest"], parent=value.get("parent"), facts=value.get("facts", {})
    )
