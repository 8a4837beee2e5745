"""The record beside each artifact: what it is, and the digest of the one that it was made from.

wheel → environment or image → run: each manifest names its parent, so a run leads back to the lock.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

from toolkit import digest, files, project
from toolkit.recipe import Recipe

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


def describe_wheel(recipe: Recipe, pip_report: Path) -> dict[str, Any]:
    """Which TensorFlow wheel went in: ours by its bytes, the published one by what pip says it downloaded.

    Args:
        recipe: what was asked for.
        pip_report: the file that ``pip install --report`` wrote
            (https://pip.pypa.io/en/stable/reference/installation-report/).
    """
    if recipe.wheel:
        return {"kind": "wheel", "name": recipe.wheel.name, "digest": digest.digest_file(recipe.wheel)}
    lock = digest.digest_file(project.locate(f"docker/requirements/{recipe.requirements}.txt"))
    report = json.loads(pip_report.read_text())
    item = next(each for each in report["install"] if canonicalize_name(each["metadata"]["name"]) in PUBLISHED)
    return {
        "kind": "wheel",
        "name": item["download_info"]["url"].rsplit("/", 1)[-1],
        "digest": "sha256:" + item["download_info"]["archive_info"]["hashes"]["sha256"],
        "parent": {"kind": "lock", "name": f"{recipe.requirements}.txt", "digest": lock},
    }
