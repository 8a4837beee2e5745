"""Records what an installation has left in an environment of the user's own, and compares it with that.

Such an environment goes on: its Python writes bytecode, and other programs install packages. So bytecode is not
compared, and what other packages brought later is named, and is no failure.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from toolkit import __version__
from toolkit.base import digest, manifest
from toolkit.base.errors import IntegrityError
from toolkit.base.findings import Finding, absent, check
from toolkit.base.signing import ENVELOPE, Statement
from toolkit.engine import content, custody
from toolkit.engine.packages import Installed, read_file_records, read_installed
from toolkit.records import origins
from toolkit.records.artifact import Artifact, Link
from toolkit.records.environment import CONTENT
from toolkit.wheel import wheel_documents

FOLDER: Final = ".toolkit-record"
"""Below the prefix of the environment."""

FILES: Final = (manifest.FILE, content.FILE, custody.FILE, ENVELOPE)
_ENGINE: Final = "install"


@dataclass(frozen=True, kw_only=True)
class InstalledEnvironment(Artifact):
    """An environment of the user's own, by its record."""

    kind = "environment"
    noun = "environment"
    title = "Environment"
    meaning = "The environment into which TensorFlow was installed."
    digest_of = "SHA-256 of its packages"
    remedy = "install what was changed again, or make a new environment: `toolkit install --into DIR`"

    @classmethod
    def recognizes(cls, folder: Path, record: object) -> bool:  # noqa: ARG003 - as all kinds
        read = manifest.parse(record)
        return read is not None and read.kind == cls.kind and read.facts.get("engine") == _ENGINE

    @property
    def name(self) -> str:
        return str(self.folder.parent)

    def make_statement(self) -> Statement:
        record = origins.read_record(self.folder, self.kind)
        return Statement(
            kind=self.kind,
            subjects=digest.read_files(self.folder, [manifest.FILE, content.FILE]),
            predicate_type=wheel_documents.PREDICATE,
            predicate=origins.describe_making("install", {"packages": record.digest}, record.parent),
        )

    def find_tensorflow(self) -> str:
        """Return its version of TensorFlow. Raises IntegrityError if its record says none."""
        packages = _read_versions(origins.read_record(self.folder, self.kind))
        for name in manifest.PUBLISHED & packages.keys():
            return packages[name]
        raise IntegrityError(f"the record in {self.folder} does not say which TensorFlow it has", remedy=self.remedy)

    def list_parents(self) -> list[Link]:
        record = manifest.read(self.folder)
        return origins.list_links(record.parent) if record else []

    def check_parent(self, parent: Link) -> list[Finding]:
        return origins.check_link(parent)

    def check(self) -> list[Finding]:
        """Compare it with its record. Raises IntegrityError if there is none."""
        record = origins.read_record(self.folder, self.kind)
        prefix = self.folder.parent
        wanted, there = _read_versions(record), read_installed(prefix)
        wrong = [
            f"{name} {there[name].version if name in there else 'is missing'}, was {version}"
            for name, version in sorted(wanted.items())
            if name not in there or there[name].version != version
        ]
        versions = "; ".join(wrong[:5]) or f"{len(wanted)}, each in the version that was recorded"
        findings = [self._check_seal(record.digest), check("packages", not wrong, versions)]
        listed = content.read(self.folder, record.facts.get("files"))
        if listed is None:
            return [*findings, check(CONTENT, False, f"{content.FILE} is not the list that the manifest names")]
        tree = content.scan_prefix(prefix)
        later = {name: item for name, item in there.items() if name not in wanted}
        brought = _list_brought(prefix, later)
        added = content.find_added(tree, listed)
        digests = content.hash_files(tree, tree.files.keys() & listed["files"].keys())
        changed = content.find_changed(tree, digests, listed)
        changed += [f"{name} was added, and no package brought it" for name in added if name not in brought]
        same = f"{len(listed['files'])} files and the interpreter, as they were installed; bytecode is not compared"
        findings.append(check(CONTENT, not changed, content.summarize(changed) or same))
        if later:
            names = content.summarize([f"{name} {item.version}" for name, item in sorted(later.items())])
            findings.append(absent("later", f"installed since, and not compared: {names}"))
        return findings

    def _check_seal(self, identity: str) -> Finding:
        """Return whether this user has made the record. That of another user is not known to be right or wrong."""
        if self.folder.stat().st_uid != os.geteuid():
            return absent("seal", "another user has installed it: --trust checks who signed it")
        wrong = custody.inspect(self.folder, identity, lambda: identity, lambda: ("it is another record's", "")).doubt
        return check("seal", not wrong, wrong or "you have installed it, and its record has not changed since")


def write(prefix: Path, wheel: Mapping[str, Any] | None) -> None:
    """Record what is in an environment now, and seal the record. Raises PreflightError if it cannot be written.

    ``wheel``: kind, name and digest of the wheel of its TensorFlow, if that is the user's own.
    """
    folder = prefix / FOLDER
    folder.mkdir(mode=0o755, exist_ok=True)
    versions = {name: item.version for name, item in read_installed(prefix).items()}
    listed, _ = content.write(folder, lambda: content.scan_prefix(prefix))
    identity = digest.digest_value({"toolkit": __version__, "packages": versions, "files": listed})
    facts = {"engine": _ENGINE, "packages": versions, "files": listed}
    manifest.write(folder, manifest.Manifest(kind="environment", digest=identity, parent=wheel, facts=facts))
    custody.seal(folder, identity)


def _list_brought(prefix: Path, packages: Mapping[str, Installed]) -> set[str]:
    """Return the files that packages say that they have brought, and the folders in which these lie."""
    files = {*read_file_records(prefix, packages)[0]}
    files |= {str(item.info.relative_to(prefix) / "RECORD") for item in packages.values()}
    return files | content.find_parents(files)


def _read_versions(record: manifest.Manifest) -> dict[str, str]:
    packages = record.facts.get("packages")
    if not isinstance(packages, dict):
        raise IntegrityError("its record names no packages", remedy="install again: `toolkit install`")
    return {str(name): str(version) for name, version in packages.items()}
