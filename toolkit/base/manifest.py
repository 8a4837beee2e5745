"""Reads and writes the record beside each artifact, with the digest of its parent: run → environment → wheel → lock."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from toolkit.base import files, signing

SCHEMA = 1
FILE = "manifest.json"
PUBLISHED = frozenset({"tensorflow", "tensorflow-cpu"})
"""Names under which TensorFlow is published, with and without CUDA."""


@dataclass(frozen=True, kw_only=True)
class Manifest:
    kind: str  # ``wheel``, ``environment``, ``image`` or ``run``
    digest: str
    parent: Mapping[str, Any] | None = None  # kind, digest and name of what it was made from
    facts: Mapping[str, Any] = field(default_factory=dict)  # further values by name

    def describe(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "kind": self.kind,
            "digest": self.digest,
            "parent": dict(self.parent) if self.parent else None,
            "facts": dict(self.facts),
        }


def write(folder: Path, manifest: Manifest) -> None:
    signing.discard(folder)
    files.write_json(folder / FILE, manifest.describe())


def read(folder: Path) -> Manifest | None:
    """Return the manifest of a folder, or None if there is no complete one of this schema."""
    return parse(files.read_json(folder / FILE))


def parse(value: object) -> Manifest | None:
    """Return the manifest that a JSON value is, or None if it is no complete one of this schema."""
    match value:
        case {"schema": schema, "kind": str(kind), "digest": str(digest), **rest} if (
            schema == SCHEMA and schema is not True
        ):
            parent, facts = rest.get("parent"), rest.get("facts", {})
            if isinstance(facts, dict) and (parent is None or isinstance(parent, dict)):
                return Manifest(kind=kind, digest=digest, parent=parent, facts=facts)
    return None
