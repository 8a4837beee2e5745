"""Compares a virtual environment with its record, and with those of its packages."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolkit.base import digest, manifest
from toolkit.base.errors import IntegrityError
from toolkit.base.findings import Finding, check
from toolkit.base.manifest import Manifest
from toolkit.base.signing import Statement
from toolkit.engine import content, packages
from toolkit.engine.content import Tree
from toolkit.records import origins
from toolkit.records.artifact import UNREADABLE, Artifact, Link
from toolkit.wheel import wheel_documents

CONTENT = "content"
"""Name of the finding about all that an interpreter may read in an environment."""


@dataclass(frozen=True, kw_only=True)
class Environment(Artifact):
    """A virtual environment in a folder of its own."""

    kind = "environment"
    noun = "environment"
    title = "Environment"
    meaning = "The packages with which the run was trained."
    digest_of = "SHA-256 of its plan"
    home = "state"
    cleaned = "environment"
    holds = "venv"
    marks = ("venv",)
    remedy = "remove its folder; the next command makes it again"

    @classmethod
    def find_named_folder(cls, named: Mapping[str, Any], state: Path) -> Path | None:
        identity = str(named.get("digest"))
        if not digest.is_digest(identity):
            return None  # it may be a pattern of files
        for folder in sorted(state.glob(f"environment-*-{digest.shorten(identity)}")):
            record = manifest.read(folder)
            if record and record.digest == identity:
                return folder
        return None

    def summarize(self, record: object) -> str:
        read = manifest.parse(record)
        if read is None:
            return UNREADABLE
        return f"Python {read.facts.get('python', '?')}, set {read.facts.get('requirements', '?')}"

    def make_statement(self) -> Statement:
        record = origins.read_record(self.folder, "environment")
        records = self.folder.glob("venv/lib/python3.*/site-packages/*.dist-info/RECORD")
        names = [manifest.FILE, packages.FILE, *(path.relative_to(self.folder).as_posix() for path in records)]
        return Statement(
            kind="environment",
            subjects=digest.read_files(self.folder, names),
            predicate_type=wheel_documents.PREDICATE,
            predicate=origins.describe_making("make-environment", {"plan": record.digest}, record.parent),
        )

    def find_tensorflow(self) -> str:
        return origins.find_tensorflow(self.folder)

    def list_parents(self) -> list[Link]:
        record = manifest.read(self.folder)
        return origins.list_links(record.parent) if record else []

    def check_parent(self, parent: Link) -> list[Finding]:
        return origins.check_link(parent)

    def check(self) -> list[Finding]:
        """Compare it with its record. Raises IntegrityError if it lacks its manifest or the record of its packages."""
        record = manifest.read(self.folder)
        if record is None or record.kind != "environment":
            raise IntegrityError(
                f"{self.folder} has no manifest of an environment",
                remedy=f"remove the folder {self.folder}; the next `toolkit up` or `toolkit train` makes it again",
            )
        recorded = packages.read(self.folder)
        installed = packages.read_installed(self.folder / "venv")
        name = self.folder.name.endswith(f"-{digest.shorten(record.digest)}")
        return [
            check("manifest", name, record.digest if name else f"{record.digest} is not that of the folder's name"),
            _check_wheel(record.parent or {}, recorded),
            _check_packages({name: item.version for name, item in recorded.items()}, installed),
            *_check_all_files(self.folder, record, installed),
        ]


def _check_wheel(parent: Mapping[str, Any], recorded: Mapping[str, packages.Recorded]) -> Finding:
    found = {item.digest for name, item in recorded.items() if name in manifest.PUBLISHED}
    return check(
        "wheel",
        parent.get("digest") in found,
        f"{parent.get('name')} {parent.get('digest')}"
        if parent.get("digest") in found
        else f"the manifest names {parent.get('digest')}, and installed was {', '.join(sorted(found)) or 'none'}",
    )


def _check_packages(wanted: Mapping[str, str], installed: Mapping[str, packages.Installed]) -> Finding:
    versions = {name: item.version for name, item in installed.items()}
    extra = versions.keys() - wanted.keys()
    wrong = [
        f"{name} {versions.get(name, 'is missing')}, was {version}"
        for name, version in sorted(wanted.items())
        if versions.get(name) != version
    ]
    wrong += [f"{name} was not installed by the toolkit" for name in sorted(extra)]
    return check("packages", not wrong, "; ".join(wrong[:5]) or f"{len(wanted)}, each in the version that was recorded")


def _check_all_files(folder: Path, record: Manifest, installed: Mapping[str, packages.Installed]) -> Iterator[Finding]:
    recorded, gone = packages.read_file_records(folder, installed)
    tree = content.scan(folder)
    listed = content.read(folder, record.facts["files"]) if "files" in record.facts else None
    # What nobody listed is named, and need not be read, which could take for ever.
    wanted = tree.files.keys() & (recorded.keys() | (listed["files"].keys() if listed else set()))
    # What has another size is changed, and need not be read either.
    digests = content.hash_files(tree, [name for name in wanted if _may_be(tree.files[name], recorded.get(name))])
    yield _check_files(recorded, gone, digests)
    yield _check_content(folder, record, listed, tree, digests)


def _may_be(file: os.stat_result, recorded: packages.FileRecord | None) -> bool:
    """Return whether a file has the size that its package recorded, if it recorded one."""
    return recorded is None or recorded.size in {None, file.st_size}


def _check_files(
    recorded: Mapping[str, packages.FileRecord], gone: Sequence[str], digests: Mapping[str, str]
) -> Finding:
    changed = [*gone, *packages.list_changed(recorded, digests)]
    text = f"{len(changed)} of {len(recorded)} are changed or gone: {', '.join(changed[:3])}"
    return check("files", not changed, text if changed else f"{len(recorded)}, each as its package recorded it")


def _check_content(
    folder: Path, record: Manifest, listed: Mapping[str, Any] | None, tree: Tree, digests: Mapping[str, str]
) -> Finding:
    """Return whether the interpreter, and all that it may read there, are those that the manifest's list has."""
    if record.facts.get("files") is None:
        return check(CONTENT, False, f"its record has no list of its files: remove {folder}, and make it again")
    if listed is None:
        return check(CONTENT, False, f"{content.FILE} is not the list that the manifest names")
    wrong = content.compare(tree, digests, listed)
    same = f"{len(tree.files)} files and the interpreter, as when it was made, and nothing else"
    return check(CONTENT, not wrong, content.summarize(wrong) or same)
