"""Compares what TensorFlow needs with what an environment has, and says what would change there."""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from toolkit.base.errors import UnsupportedError
from toolkit.install.installed import Installed, list_refusals
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
    wanted: tuple[Package, ...]  # what is to be installed
    changed: tuple[Change, ...]  # packages of the environment that get another version, or are removed
    broken: tuple[str, ...]  # packages of the environment that do not accept a new version, in words
    kept: int  # packages of the environment that stay as they are

    @property
    def added(self) -> tuple[Package, ...]:
        there = {change.name for change in self.changed}
        return tuple(package for package in self.wanted if package.name not in there)

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
        updated = len(self.changed) - len(self.removed)
        return f"{len(self.added)} packages added, {updated} changed, {len(self.removed)} removed, {self.kept} kept"

    def to_json(self) -> dict[str, Any]:
        return {
            "added": {item.name: item.version for item in self.added},
            "changed": {item.name: {"before": item.before, "after": item.after} for item in self.changed if item.after},
            "removed": {item.name: item.before for item in self.changed if not item.after},
            "broken": list(self.broken),
            "kept": self.kept,
        }


def compare(packages: Sequence[Package], installed: Mapping[str, Installed]) -> Changes:
    """Return what installing packages changes in an environment."""
    wanted = {package.name: package for package in packages if not _is_there(package, installed.get(package.name))}
    tensorflow = next((package.name for package in packages if package.is_tensorflow), "")
    second = [name for name, item in installed.items() if tensorflow and item.tensorflow and name != tensorflow]
    changed = {
        name: _describe(installed[name], wanted.get(name), tensorflow)
        for name in (*wanted, *second)
        if name in installed
    }
    stay = sorted((item for name, item in installed.items() if name not in changed), key=lambda item: item.name)
    return Changes(
        wanted=tuple(wanted.values()),
        changed=tuple(changed.values()),
        broken=tuple(
            f"{item.name} {item.version} may no longer work: it needs {need.name}{need.specifier}, and gets {version}"
            for item, need, version in list_refusals(stay, {name: package.version for name, package in wanted.items()})
        ),
        kept=len(stay),
    )


def _describe(there: Installed, package: Package | None, tensorflow: str) -> Change:
    if package is None:
        why = f"{tensorflow} has files of the same names"
    else:
        why = "it is another build of this version" if there.version == package.version else package.why
    return Change(
        name=there.name,
        before=there.version,
        after=package.version if package else "",
        why=why,
        manager="conda" * (there.installer == "conda"),
    )


def _is_there(package: Package, installed: Installed | None) -> bool:
    """Return whether a package is installed as wanted. A graft of a published TensorFlow stands for that."""
    if installed is None:
        return False
    if package.wheel:
        same = all(installed.files.get(path) == hash_ for path, hash_ in package.files.items() if hash_)
        return installed.version == package.version and same
    return package.version in {installed.version, installed.version.partition("+")[0]}


def require_apart(changes: Changes, installed: Mapping[str, Installed]) -> None:
    """Raise UnsupportedError if a package that comes is known by its name to have the files of another one that stays.

    Those are libraries of NVIDIA, whose names differ only by the CUDA that they are for, such as `-cu12` and `-cu13`.
    """
    gone = {change.name for change in changes.changed}
    stay = {_CUDA.sub("", name): name for name in installed.keys() - gone if _CUDA.search(name)}
    for package in changes.added:
        there = installed.get(stay.get(_CUDA.sub("", package.name), ""))
        if there and _CUDA.search(package.name):
            file = min(there.files, key=lambda path: (".so" not in path, path), default="the files")
            raise _refuse(package.name, there, file, installed)


def require_no_overlap(new: Mapping[str, Installed], stay: Mapping[str, Installed]) -> None:
    """Raise UnsupportedError if a package that comes has other bytes for a file of one that stays."""
    owners = {path: item for item in stay.values() for path in item.files}
    for package in new.values():
        for path, digest in package.files.items():
            there = owners.get(path)
            if there and digest and there.files[path] not in {digest, ""} and not path.startswith(_HARMLESS):
                raise _refuse(package.name, there, path, stay)


_CUDA: Final = re.compile(r"-cu\d+$")
_HARMLESS: Final = ("tests/", "test/", "docs/", "examples/", "LICENSE", "README")
"""How the paths begin that many packages have by mistake, and that none of them imports."""


def _refuse(coming: str, there: Installed, path: str, installed: Mapping[str, Installed]) -> UnsupportedError:
    users = sorted(
        item.name
        for item in installed.values()
        if any(canonicalize_name(need.name) == there.name for need in item.needs)
    )
    cuda = _CUDA.search(coming) if "torch" in users else None
    torch = f"; or first install a torch from an index whose name begins with {cuda[0][1:]}" if cuda else ""
    return UnsupportedError(
        f"{coming} and {there.name} cannot be in one environment: they have the same files",
        why=f"{coming} would overwrite {path} of {there.name} {there.version}"
        + (f", and {' and '.join(users)} would load it" if users else ""),
        remedy=f"install into an environment of its own: --into DIR{torch}",
    )
