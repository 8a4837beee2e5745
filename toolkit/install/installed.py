"""Reads which packages an environment has, from their metadata. No code of theirs runs."""

import csv
import io
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from toolkit.base import files
from toolkit.base.interpreters import Interpreter

_MODULE: Final = "tensorflow/__init__.py"
"""A file of every TensorFlow, under whatever name it is published."""


@dataclass(frozen=True, kw_only=True)
class Installed:
    name: str
    version: str
    needs: tuple[Requirement, ...] = ()  # what counts here of its metadata, and of the table of what that does not tell
    installer: str = ""  # that its metadata names, such as ``pip`` or ``conda``
    files: Mapping[str, str] = field(default_factory=dict)  # hash of each file by its path, both as in RECORD

    @property
    def tensorflow(self) -> bool:
        return _MODULE in self.files


def list_installed(python: Interpreter) -> dict[str, Installed]:
    """Return the packages of an environment, by their names."""
    installed: dict[str, Installed] = {}
    for distribution in metadata.distributions(path=[str(python.packages)]):
        if not (distribution.metadata and distribution.metadata["Name"]):  # what an interrupted installer has left
            continue
        name, version = str(canonicalize_name(distribution.metadata["Name"])), str(distribution.version)
        installed[name] = Installed(
            name=name,
            version=version,
            needs=tuple(_list_needs(name, version, distribution.requires or (), python)),
            installer=(distribution.read_text("INSTALLER") or "").strip(),
            files=dict(read_record(distribution.read_text("RECORD") or "")),
        )
    return installed


def read_record(text: str) -> Iterator[tuple[str, str]]:
    """Yield each path of a RECORD with its hash."""
    with suppress(csv.Error):
        yield from ((row[0], row[1]) for row in csv.reader(io.StringIO(text)) if len(row) == 3)


@cache
def _load_table() -> Any:
    return files.parse_yaml(Path(__file__).with_name("packages.yaml").read_text())


def _list_needs(name: str, version: str, requires: Iterable[str], python: Interpreter) -> Iterator[Requirement]:
    for text in requires:
        with suppress(InvalidRequirement):  # some old packages have requirements of no valid form
            if applies(requirement := Requirement(text), python):
                yield requirement
    for row in _load_table()["compiled"]:
        with suppress(InvalidVersion):
            if row["package"] == name and Version(version) < Version(row["before"]):
                yield Requirement(row["needs"])


def applies(requirement: Requirement, python: Interpreter) -> bool:
    """Return whether a requirement counts for a Python of this machine. Those of extras do not."""
    here = {"python_version": python.minor, "python_full_version": python.version, "extra": ""}
    return requirement.marker is None or requirement.marker.evaluate({**here, "implementation_version": python.version})


def list_refusals(
    installed: Iterable[Installed], versions: Mapping[str, str]
) -> Iterator[tuple[Installed, Requirement, str]]:
    """Yield which packages do not accept others in these versions: the package, what it needs, and what it gets."""
    for item in installed:
        for need in item.needs:
            version = versions.get(canonicalize_name(need.name))
            if version and not need.specifier.contains(version, prereleases=True):
                yield item, need, version
