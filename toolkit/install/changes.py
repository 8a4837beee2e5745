"""Compares what TensorFlow needs with what an environment has, and says what would change there."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from toolkit.base.errors import UnsupportedError
from toolkit.base.interpreters import Interpreter
from toolkit.install.installed import Installed, applies, load_table, read_requirement
from toolkit.install.resolution import Package


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
    """Return what installing packages changes in an environment."""
    wanted = {package.name: package for package in packages if not _is_there(package, installed.get(package.name))}
    tensorflow = next((package for package in packages if package.is_tensorflow), None)
    removed = [item for name, item in installed.items() if tensorflow and item.tensorflow and name != tensorflow.name]
    changed = [
        Change(
            name=name,
            before=installed[name].version,
            after=package.version,
            why="it is another build of this version" if installed[name].version == package.version else package.why,
            manager="conda" * (installed[name].installer == "conda"),
        )
        for name, package in wanted.items()
        if name in installed
    ]
    changed += [
        Change(
            name=item.name,
            before=item.version,
            after="",
            why=f"{tensorflow.name} has files of the same names" if tensorflow else "",
            manager="conda" * (item.installer == "conda"),
        )
        for item in removed
    ]
    gone = {item.name for item in removed}
    stay = [item for name, item in installed.items() if name not in gone and name not in wanted]
    return Changes(
        added=tuple(package for package in wanted.values() if package.name not in installed),
        replaced=tuple(package for package in wanted.values() if package.name in installed),
        changed=tuple(changed),
        broken=tuple(_list_broken(wanted, stay, python)),
        kept=len(stay),
    )


def _is_there(package: Package, installed: Installed | None) -> bool:
    """Return whether a package is installed as wanted. A graft of a published TensorFlow stands for that."""
    if installed is None:
        return False
    if package.wheel:
        same = all(installed.files.get(path) == hash_ for path, hash_ in package.files.items() if hash_)
        return installed.version == package.version and same
    return package.version in {installed.version, installed.version.partition("+")[0]}


def _list_broken(wanted: Mapping[str, Package], stay: Iterable[Installed], python: Interpreter) -> Iterator[str]:
    """Yield which packages do not accept what comes, whether or not they accepted what was there."""
    for item in sorted(stay, key=lambda item: item.name):
        for text in item.requires:
            requirement = read_requirement(text)
            if requirement is None or not applies(requirement, python):
                continue
            package = wanted.get(canonicalize_name(requirement.name))
            if package and not requirement.specifier.contains(package.version, prereleases=True):
                needs = f"{requirement.name}{requirement.specifier}"
                yield f"{item.name} {item.version} may no longer work: it needs {needs}, and gets {package.version}"


def require_apart(changes: Changes, installed: Mapping[str, Installed]) -> None:
    """Raise UnsupportedError if a package that comes is known to have the files of another one that stays."""
    gone = {change.name for change in changes.changed}
    for pattern in load_table()["same_files"]:
        for package in changes.added:
            coming = re.fullmatch(pattern, package.name)
            for name in sorted(installed.keys() - gone - {package.name}) if coming else ():
                there = re.fullmatch(pattern, name)
                if coming and there and coming.groups() == there.groups():
                    raise _refuse(package.name, installed[name], _name_file(installed[name]), installed)


def require_no_overlap(new: Mapping[str, Installed], stay: Mapping[str, Installed]) -> None:
    """Raise UnsupportedError if a package that comes has other bytes for a file of one that stays."""
    owners = {path: item for item in stay.values() for path in item.files}
    for package in new.values():
        for path, digest in package.files.items():
            there = owners.get(path)
            if there and digest and there.files[path] not in {digest, ""} and not path.startswith(_HARMLESS):
                raise _refuse(package.name, there, path, stay)


_HARMLESS: Final = ("tests/", "test/", "docs/", "examples/", "LICENSE", "README")
"""How the paths begin that many packages have by mistake, and that none of them imports."""


def _name_file(package: Installed) -> str:
    files = sorted(package.files, key=lambda path: (".so" not in path, "__init__" not in path, path))
    return files[0] if files else "the same files"


def _refuse(coming: str, there: Installed, path: str, installed: Mapping[str, Installed]) -> UnsupportedError:
    needs = {item.name: [read_requirement(text) for text in item.requires] for item in installed.values()}
    users = sorted(
        name
        for name, reads in needs.items()
        if any(read and canonicalize_name(read.name) == there.name for read in reads)
    )
    torch = "; or install a torch for CUDA 12, from its index for cu126 or cu128, and then this" * ("torch" in users)
    return UnsupportedError(
        f"{coming} and {there.name} cannot be in one environment: they have the same files",
        why=f"{coming} would overwrite {path} of {there.name} {there.version}"
        + (f", and {' and '.join(users)} would load it" if users else ""),
        remedy=f"install into an environment of its own: --into DIR{torch}",
    )
