"""Reads which packages an environment has, from their metadata. No code of theirs runs."""

import csv
import io
from collections.abc import Iterator, Mapping
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
    requires: tuple[str, ...] = ()  # by its metadata, and by the table of what metadata does not tell
    installer: str = ""  # that its metadata names, such as ``pip`` or ``conda``
    files: Mapping[str, str] = field(default_factory=dict)  # hash of each file by its path, both as in RECORD

    @property
    def tensorflow(self) -> bool:
        return _MODULE in self.files


def list_installed(folder: Path) -> dict[str, Installed]:
    """Return the packages in a folder of packages (``site-packages``), by their names."""
    installed: dict[str, Installed] = {}
    for distribution in metadata.distributions(path=[str(folder)]):
        if not (distribution.metadata and distribution.metadata["Name"]):  # what an interrupted installer has left
            continue
        name, version = str(canonicalize_name(distribution.metadata["Name"])), str(distribution.version)
        installed[name] = Installed(
            name=name,
            version=version,
            requires=(*(distribution.requires or ()), *_list_untold(name, version)),
            installer=(distribution.read_text("INSTALLER") or "").strip(),
            files=dict(read_record(distribution.read_text("RECORD") or "")),
        )
    return installed


def read_record(text: str) -> Iterator[tuple[str, str]]:
    """Yield each path of a RECORD with its hash."""
    with suppress(csv.Error):
        yield from ((row[0], row[1]) for row in csv.reader(io.StringIO(text)) if len(row) == 3)


@cache
def load_table() -> Any:
    """Return ``packages.yaml``: what metadata of packages does not tell."""
    return files.parse_yaml((Path(__file__).with_name("packages.yaml")).read_text())


def _list_untold(name: str, version: str) -> Iterator[str]:
    for row in load_table()["compiled"]:
        with suppress(InvalidVersion):
            if row["package"] == name and Version(version) < Version(row["before"]):
                yield row["needs"]


def read_requirement(text: str) -> Requirement | None:
    """Return a requirement of a package's metadata; None if it has no valid form, as in old packages."""
    try:
        return Requirement(text)
    except InvalidRequirement:
        return None


def applies(requirement: Requirement, python: Interpreter) -> bool:
    """Return whether a requirement counts for a Python of this machine. Those of extras do not."""
    here = {"python_version": python.minor, "python_full_version": python.version, "extra": ""}
    return requirement.marker is None or requirement.marker.evaluate({**here, "implementation_version": python.version})
