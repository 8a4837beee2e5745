"""Finds the packages that TensorFlow needs, in versions that the packages of an environment accept.

uv resolves. It prefers what is installed, then the versions of the locked set. What other packages of the environment
need is a constraint as long as there is a solution with it. :mod:`toolkit.install.changes` names what cannot be kept.
"""

import re
import tempfile
import zipfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from toolkit.base import manifest
from toolkit.base.interpreters import Interpreter
from toolkit.engine.uv import UnsolvableError, Uv
from toolkit.install.installed import Installed, applies, list_refusals, read_record

NVIDIA: Final = "nvidia-"
"""How the names of packages with NVIDIA's libraries begin."""

_ENTRY: Final = re.compile(r"(?m)^(?=[A-Za-z0-9])")


_FORM: Final = ("--no-header", "--no-annotate", "--generate-hashes", "--only-binary", ":all:")


@dataclass(frozen=True, kw_only=True)
class Package:
    name: str  # as PEP 503 normalizes it
    version: str
    text: str  # its entry in a requirements file, with all hashes
    wheel: Path | None = None  # a file to install in place of a download
    digest: str = ""  # of this file
    why: str = ""  # what does not accept the version that is installed
    files: Mapping[str, str] = field(default_factory=dict)  # of this file: hashes by path, as RECORD has them

    @property
    def is_tensorflow(self) -> bool:
        return self.name in manifest.PUBLISHED


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is wanted, and what is there."""

    python: Interpreter
    roots: tuple[str, ...]  # requirements
    locked: Mapping[str, Package]
    installed: Mapping[str, Installed]
    wheel: Package | None = None  # of the user's own, which takes the place of a published TensorFlow


def read_locked(text: str, python: Interpreter) -> dict[str, Package]:
    """Return the packages of a file with hashes, by their names: those for a Python and this machine, else for others.

    The version of a package that is named by its address stays empty.
    """
    packages: dict[str, Package] = {}
    for entry in _ENTRY.split(text)[1:]:
        requirement = Requirement(entry.partition("--hash=")[0].rstrip(" \\\n"))
        name = str(canonicalize_name(requirement.name))
        version = next((each.version for each in requirement.specifier), "")
        hashes = "".join(f" \\\n    --hash={value}" for value in re.findall(r"--hash=(\S+)", entry))
        if name not in packages or applies(requirement, python):
            packages[name] = Package(name=name, version=version, text=f"{name}=={version}{hashes}")
    return packages


def needs_name(installed: Mapping[str, Installed]) -> bool:
    """Return whether packages need one of the name `tensorflow`, which would be a second one beside another name."""
    return "tensorflow" in installed or any(
        need.name == "tensorflow" for item in installed.values() for need in item.needs
    )


def resolve(uv: Uv, question: Question) -> tuple[Package, ...]:
    """Return all packages that ``roots`` need, each with its hashes: those of the locked set if that has its version.

    Raises BuildError if there is no solution, or if the index does not answer.
    """
    solution: dict[str, Package] = {}
    refused: set[str] = set()  # packages of the environment that cannot have what they need
    moved: set[str] = set()  # packages that cannot stay, for which the locked version is preferred
    while True:
        wishes = [
            (item, need)
            for name, item in question.installed.items()
            if name not in {*solution, *refused} and not item.tensorflow
            for need in item.needs
            if need.specifier and canonicalize_name(need.name) in solution
        ]
        constraints = [f"{need.name}{need.specifier}" for _, need in wishes]
        try:
            found = _ask(uv, question, constraints, moved)
        except UnsolvableError:
            if not wishes:
                raise
            free = {name: package.version for name, package in _ask(uv, question, ()).items()}
            who = {item.name: item for item, _ in wishes}
            refused |= {item.name for item, *_ in list_refusals(who.values(), free)} or who.keys()
            continue
        if moving := {name for name, package in found.items() if _moves(package, question)} - moved:
            moved |= moving
        elif found.keys() <= solution.keys():
            return tuple(_explain(uv, question, constraints, found[name]) for name in sorted(found))
        solution |= found


def _moves(package: Package, question: Question) -> bool:
    there = question.installed.get(package.name)
    return there is not None and there.version.partition("+")[0] != package.version


def _explain(uv: Uv, question: Question, constraints: Sequence[str], package: Package) -> Package:
    """Say why a package does not stay, in the words by which uv refuses the version that is installed."""
    there = question.installed.get(package.name)
    if there is None or package.wheel or not _moves(package, question):
        return package
    try:
        _ask(uv, question, [*constraints, f"{package.name}=={there.version}"])
    except UnsolvableError as error:
        range_ = rf"{re.escape(package.name)}[^\s,]*(?:,[<>=!~][^\s,]*)*"
        needs = re.search(rf"([\w.-]+)(?:\[\S+\])?(?:==\S+)? depends? on ({range_})", error.why)
        return replace(package, why=f"{needs[1]} needs {needs[2]}" if needs else "")
    return package


def _ask(uv: Uv, question: Question, constraints: Iterable[str], moved: Collection[str] = ()) -> dict[str, Package]:
    """Return uv's answer, which it has in a tenth of a second from its cache.

    ``moved``: names of packages for which the locked version is preferred to the installed one.
    """
    with tempfile.TemporaryDirectory() as folder:
        wanted, limits, answer = (Path(folder, name) for name in ("wanted.in", "limits.txt", "answer.txt"))
        own = {package.name: package for package in (question.wheel,) if package}
        wanted.write_text("\n".join([*question.roots, *(package.text.partition(" \\")[0] for package in own.values())]))
        limits.write_text("\n".join(constraints))
        known = {name: package.version for name, package in question.locked.items()}
        known |= {name: item.version for name, item in question.installed.items() if name not in moved}
        answer.write_text("".join(f"{name}=={version}\n" for name, version in known.items()))
        place = ("--python", question.python.path, "--constraints", limits, "--output-file", answer)
        uv.run("pip", "compile", "--quiet", *_FORM, *place, wanted)
        found = read_locked(answer.read_text(), question.python)
    same = {
        name: item for name, item in question.locked.items() if name in found and item.version == found[name].version
    }
    return {**found, **same, **own}


def describe_wheel(wheel: Path, digest: str) -> Package:
    """Return the package of a wheel of one's own."""
    name, version = wheel.name.split("-")[:2]
    text = f"{name} @ {wheel.as_uri()} \\\n    --hash={digest}"
    with zipfile.ZipFile(wheel) as archive:
        files = dict(read_record(archive.read(f"{name}-{version}.dist-info/RECORD").decode()))
    return Package(name=canonicalize_name(name), version=version, text=text, wheel=wheel, digest=digest, files=files)
