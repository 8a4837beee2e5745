"""Compares what TensorFlow needs with what an environment has, and says what would change there."""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from typing import Any

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from toolkit.install.packages import Package, applies, describe_environment, read_requirement
from toolkit.interpreters import Interpreter

_MODULE = "tensorflow/__init__.py"
"""A file of every TensorFlow, under whatever name it is published. Two of them would write over each other."""


@dataclass(frozen=True, kw_only=True)
class Installed:
    name: str
    version: str
    requires: tuple[str, ...] = ()
    installer: str = ""  # that its metadata names, such as ``pip`` or ``conda``
    origin: str = ""  # digest of the file that it was installed from, if that was a file of the user's own
    tensorflow: bool = False  # whether it has the files of a TensorFlow


def list_installed(python: Interpreter) -> dict[str, Installed]:
    """Return the packages of an environment by their names. Their metadata are read, and no code of theirs runs."""
    places = list(dict.fromkeys((str(python.packages), str(python.compiled))))
    installed: dict[str, Installed] = {}
    for distribution in metadata.distributions(path=places):
        if not (distribution.metadata and distribution.metadata["Name"]):  # what an interrupted pip has left
            continue
        name = canonicalize_name(distribution.metadata["Name"])
        installed[name] = Installed(
            name=name,
            version=str(distribution.version),
            requires=tuple(distribution.requires or ()),
            installer=(distribution.read_text("INSTALLER") or "").strip(),
            origin=_read_origin(distribution.read_text("direct_url.json")),
            tensorflow=f"{_MODULE}," in (distribution.read_text("RECORD") or ""),
        )
    return installed


def _read_origin(text: str | None) -> str:
    """Return the digest in a package's ``direct_url.json`` (PEP 610); empty if there is none."""
    with suppress(ValueError, AttributeError):
        info = json.loads(text or "{}").get("archive_info", {})
        value = info.get("hashes", {}).get("sha256") or info.get("hash", "").partition("sha256=")[2]
        return f"sha256:{value}" if value else ""
    return ""


@dataclass(frozen=True, kw_only=True)
class Change:
    name: str
    before: str
    after: str  # empty: it is removed
    why: str = ""
    manager: str = ""  # ``conda`` if conda installed it, whose records then no longer fit

    def describe(self) -> str:
        if not self.after:
            sentence = f"{self.name} {self.before} is removed"
        else:
            sentence = f"{self.name} {self.before} becomes {self.after}{_compare(self.before, self.after)}"
        manager = f"{self.manager} installed it, and does not learn of the change" if self.manager else ""
        return sentence + "".join(f"; {remark}" for remark in (self.why, manager) if remark)


def _compare(before: str, after: str) -> str:
    with suppress(InvalidVersion):
        if Version(before) != Version(after):
            return ", a newer one" if Version(before) < Version(after) else ", an OLDER one"
    return ""


@dataclass(frozen=True, kw_only=True)
class Changes:
    added: tuple[Package, ...]
    replaced: tuple[Package, ...]  # the new packages of ``changed``
    changed: tuple[Change, ...]  # packages of the environment that get another version, or are removed
    broken: tuple[str, ...]  # packages of the environment that do not accept a new version, in words
    kept: int  # packages of the environment that stay as they are

    @property
    def wanted(self) -> tuple[Package, ...]:
        """What is to be installed."""
        return (*self.added, *self.replaced)

    @property
    def removed(self) -> tuple[str, ...]:
        return tuple(change.name for change in self.changed if not change.after)

    @property
    def needs_consent(self) -> bool:
        return bool(self.changed or self.broken)

    def describe(self) -> list[str]:
        """Return lines for people: one for what is added, and one for each other package that is touched."""
        added = ", ".join(f"{item.name} {item.version}" for item in self.added)
        lines = [f"added: {added}"] if added else []
        return [*lines, *(item.describe() for item in self.changed), *self.broken]

    def summarize(self) -> str:
        updated = sum(bool(change.after) for change in self.changed)
        return f"{len(self.added)} packages added, {updated} changed, {len(self.removed)} removed, {self.kept} kept"

    def to_json(self) -> dict[str, Any]:
        return {
            "added": {item.name: item.version for item in self.added},
            "changed": {item.name: {"before": item.before, "after": item.after} for item in self.changed if item.after},
            "removed": {item.name: item.before for item in self.changed if not item.after},
            "broken": list(self.broken),
            "kept": self.kept,
        }


def compare(packages: Sequence[Package], installed: Mapping[str, Installed], python: Interpreter) -> Changes:
    """Return what installing packages changes in an environment.

    TensorFlow and NVIDIA's libraries become exactly those of the set. Another package that is there already stays if
    all that is installed accepts its version, as with pip. If it stays in an older version, what only the newer one
    needs is not installed.
    """
    environment = describe_environment(python)
    known = {package.name: package for package in packages}
    needed = known.keys() - {name for package in packages for name in _list_needed(package.requires, environment)}
    needed |= {package.name for package in packages if package.exact}
    wanted: dict[str, Package] = {}
    while True:
        undecided = [known[name] for name in needed - wanted.keys()]
        more = [package for package in undecided if not _stays(package, wanted, installed, known, environment)]
        wanted |= {package.name: package for package in more}
        used = [requires for name in needed for requires in _list_requires(known[name], wanted, installed)]
        below = {*_list_needed(used, environment)} & known.keys()
        if not more and below <= needed:
            break
        needed |= below
    removed = [package for package in installed.values() if package.tensorflow and package.name not in known]
    return Changes(
        added=tuple(package for package in packages if package.name in wanted and package.name not in installed),
        replaced=tuple(package for package in packages if package.name in wanted and package.name in installed),
        changed=tuple(_list_changes(wanted, installed, removed, environment)),
        broken=tuple(_list_broken(wanted, installed, needed | {package.name for package in removed}, environment)),
        kept=len(installed.keys() - wanted.keys()) - len(removed),
    )


def _list_needed(requires: Iterable[str], environment: Mapping[str, str]) -> Iterator[str]:
    for text in requires:
        requirement = read_requirement(text)
        if requirement and applies(requirement, environment):
            yield canonicalize_name(requirement.name)


def _stays(
    package: Package,
    wanted: Mapping[str, Package],
    installed: Mapping[str, Installed],
    known: Collection[str],
    environment: Mapping[str, str],
) -> bool:
    """Return whether a package stays as it is: what is installed accepts it, and it accepts that in turn.

    ``known``: the names of the set.
    """
    there = installed.get(package.name)
    if there is None:
        return False
    if package.exact:
        return there.version == package.version and there.origin == package.digest
    version, later = {package.name: there.version}, _predict(installed, wanted)
    refused = [_find_conflicts(other.requires, version, environment, absent=False) for other in wanted.values()]
    # What it lacks is added, unless the set does not have it.
    refusing = [_find_conflicts(there.requires, later, environment, absent=False)]
    lacking = (name for name in _list_needed(there.requires, environment) if name not in {*later, *known})
    return not any(conflict for conflicts in (*refused, *refusing, lacking) for conflict in conflicts)


def _list_requires(
    package: Package, wanted: Mapping[str, Package], installed: Mapping[str, Installed]
) -> Iterator[str]:
    """Yield what a package of the set needs in the version that the environment will have."""
    there = installed.get(package.name)
    if package.name in wanted or there is None or there.version == package.version:
        yield from package.requires
    else:
        yield from there.requires


def _predict(installed: Mapping[str, Installed], wanted: Mapping[str, Package]) -> dict[str, str]:
    """Return the versions that an environment will have."""
    before = {name: package.version for name, package in installed.items()}
    return before | {name: package.version for name, package in wanted.items()}


def _find_conflicts(
    requires: Iterable[str], versions: Mapping[str, str], environment: Mapping[str, str], *, absent: bool = True
) -> Iterator[tuple[str, str]]:
    """Yield the name of each requirement that versions do not meet, and the requirement.

    ``absent``: whether a package that is not there counts.
    """
    for text in requires:
        requirement = read_requirement(text)
        if requirement is None or not applies(requirement, environment):
            continue
        name = canonicalize_name(requirement.name)
        version = versions.get(name)
        if version is None:
            if absent:
                yield name, text
        elif not requirement.specifier.contains(version, prereleases=True):
            yield name, text


def _list_changes(
    wanted: Mapping[str, Package],
    installed: Mapping[str, Installed],
    removed: Iterable[Installed],
    environment: Mapping[str, str],
) -> Iterator[Change]:
    for name, package in wanted.items():
        if before := installed.get(name):
            why = _explain(package, before, wanted.values(), environment)
            manager = before.installer if before.installer == "conda" else ""
            yield Change(name=name, before=before.version, after=package.version, why=why, manager=manager)
    new = next((package for package in wanted.values() if package.is_tensorflow), None)
    for old in removed:
        why = f"{new.name} has files of the same names" if new else "it has the files of another TensorFlow"
        manager = old.installer if old.installer == "conda" else ""
        yield Change(name=old.name, before=old.version, after="", why=why, manager=manager)


def _explain(package: Package, before: Installed, wanted: Iterable[Package], environment: Mapping[str, str]) -> str:
    """Return why a package that is there does not stay; empty if it is one that must have the version of the set."""
    if before.version == package.version:
        return "it is another build of this version"
    there = {package.name: before.version}
    for other in wanted:
        for _, text in _find_conflicts(other.requires, there, environment, absent=False):
            return f"{other.name} needs {text.partition(';')[0].strip()}"
    return ""


def _list_broken(
    wanted: Mapping[str, Package],
    installed: Mapping[str, Installed],
    ours: set[str],
    environment: Mapping[str, str],
) -> Iterator[str]:
    """Yield what other packages of the environment accept now, and will not accept afterwards."""
    now = {name: package.version for name, package in installed.items()}
    later = _predict(installed, wanted)
    for name, package in sorted(installed.items()):
        if name in ours:
            continue
        before = set(_find_conflicts(package.requires, now, environment))
        for needed, text in _find_conflicts(package.requires, later, environment):
            if (needed, text) not in before:
                yield f"{name} {package.version} may no longer work: it needs {text}, and gets {later[needed]}"
