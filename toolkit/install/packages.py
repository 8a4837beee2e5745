"""Finds the packages of a locked set that TensorFlow needs, each with its hashes."""

import json
import re
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from packaging.markers import default_environment
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from toolkit import manifest
from toolkit.errors import IntegrityError
from toolkit.install.pip import Pip
from toolkit.interpreters import Interpreter

NVIDIA: Final = "nvidia-"
"""How the names of packages with NVIDIA's libraries begin."""

_ENTRY: Final = re.compile(r"(?m)^(?=[A-Za-z0-9])")
_HASH: Final = re.compile(r"\s*\\?\s+--hash=")


@dataclass(frozen=True, kw_only=True)
class Package:
    name: str  # as PEP 503 normalizes it
    version: str
    text: str  # its entry in a requirements file, with all hashes
    requires: tuple[str, ...] = ()  # requirements of its metadata
    exact: bool = False  # whether another version that its users accept will not do: TensorFlow and NVIDIA's libraries
    wheel: Path | None = None  # a file to install in place of a download
    digest: str = ""  # of this file

    @property
    def is_tensorflow(self) -> bool:
        return self.name in manifest.PUBLISHED


def describe_environment(python: Interpreter) -> dict[str, str]:
    """Return the values of environment markers for a Python of this machine."""
    known = {name: str(value) for name, value in default_environment().items()}
    versions = {"python_version": python.minor, "python_full_version": python.version}
    return {**known, **versions, "implementation_version": python.version, "extra": ""}


def applies(requirement: Requirement, environment: Mapping[str, str]) -> bool:
    return requirement.marker is None or requirement.marker.evaluate(dict(environment))


def read_locked(text: str, environment: Mapping[str, str]) -> dict[str, Package]:
    """Return the packages of a locked set that are for a Python and machine, by their names."""
    packages: dict[str, Package] = {}
    for entry in _ENTRY.split(text)[1:]:
        requirement = Requirement(_HASH.split(entry)[0].strip().rstrip("\\").strip())
        if applies(requirement, environment):
            version = next(iter(requirement.specifier)).version
            name = canonicalize_name(requirement.name)
            packages[name] = Package(name=name, version=version, text=entry.rstrip("\n"))
    return packages


def select_packages(
    pip: Pip,
    python: Interpreter,
    locked: Mapping[str, Package],
    roots: Iterable[str],
    *,
    wheel: Path | None = None,
    digest: str = "",
    show: Callable[[str], object] = lambda _line: None,
) -> tuple[Package, ...]:
    """Return the packages of a locked set that ``roots`` need, which pip finds out. Nothing is installed.

    pip is not asked about NVIDIA's packages. They need only each other, all are among the roots, and an index without
    separate metadata would send gigabytes for the answer.

    ``wheel``: a file that is installed in place of the TensorFlow of the set. ``digest``: its digest. Raises
    IntegrityError if a package is needed that is not in the set, and BuildError if the index does not answer.
    """
    with tempfile.TemporaryDirectory() as folder:
        constraints, report = Path(folder, "constraints.txt"), Path(folder, "report.json")
        pins = (package for package in locked.values() if not (wheel and package.is_tensorflow))
        constraints.write_text("".join(f"{package.name}=={package.version}\n" for package in pins))
        asked = [root for root in roots if not root.startswith(NVIDIA)]
        options = ["--dry-run", "--ignore-installed", "--report", str(report), "--constraint", str(constraints)]
        pip.install(python.path, *options, *asked, *([str(wheel)] if wheel else []), show=show)
        items = json.loads(report.read_text())["install"]
    libraries = [replace(package, exact=True) for name, package in locked.items() if name.startswith(NVIDIA)]
    return tuple(sorted([*_read_items(items, locked, wheel, digest), *libraries], key=lambda package: package.name))


def _read_items(
    items: Sequence[Mapping[str, Any]], locked: Mapping[str, Package], wheel: Path | None, digest: str
) -> Iterable[Package]:
    for item in items:
        metadata = item["metadata"]
        name, version = canonicalize_name(metadata["name"]), str(metadata["version"])
        requires = tuple(metadata.get("requires_dist", ()))
        if wheel and name in manifest.PUBLISHED:
            text = describe_wheel(name, wheel.as_uri(), digest)
            yield Package(
                name=name, version=version, text=text, requires=requires, exact=True, wheel=wheel, digest=digest
            )
            continue
        pinned = locked.get(name)
        if pinned is None or pinned.version != version:
            raise IntegrityError(
                f"TensorFlow needs {name} {version}, which the locked set does not have",
                why="only packages with known hashes are installed",
                remedy="`toolkit lock` with these versions makes the set anew",
            )
        yield replace(pinned, requires=requires, exact=pinned.is_tensorflow)


def describe_wheel(name: str, place: str, digest: str) -> str:
    """Return the entry of a requirements file for a wheel, given by its address."""
    return f"{name} @ {place} \\\n    --hash={digest}"


def read_requirement(text: str) -> Requirement | None:
    """Return a requirement of a package's metadata; None if it has no valid form, as in old packages."""
    try:
        return Requirement(text)
    except InvalidRequirement:
        return None
