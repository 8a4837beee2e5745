"""Finds the packages that TensorFlow needs, in versions that the packages of an environment accept.

uv resolves. It prefers what is installed, then the versions of the locked set. What other packages of the environment
need is a constraint as long as there is a solution with it. :mod:`toolkit.install.changes` names what cannot be kept.
"""

import re
import tempfile
import zipfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from toolkit.base import manifest
from toolkit.base.interpreters import Interpreter
from toolkit.engine.uv import UnsolvableError, Uv
from toolkit.install.installed import Installed, applies, read_record, read_requirement

NVIDIA: Final = "nvidia-"
"""How the names of packages with NVIDIA's libraries begin."""

_ENTRY: Final = re.compile(r"(?m)^(?=[A-Za-z0-9])")
_HASH: Final = re.compile(r"\s*\\?\s+--hash=")


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


@dataclass(frozen=True)
class _Wish:
    """What a package that is to stay needs of another one."""

    who: str
    requirement: Requirement

    @property
    def text(self) -> str:
        return f"{self.requirement.name}{self.requirement.specifier}"


def read_locked(text: str, python: Interpreter) -> dict[str, Package]:
    """Return the packages of a locked set by their names: those for a Python and this machine, else for another one."""
    packages: dict[str, Package] = {}
    for entry in _ENTRY.split(text)[1:]:
        requirement = Requirement(_HASH.split(entry)[0].strip().rstrip("\\").strip())
        name, version = str(canonicalize_name(requirement.name)), next(iter(requirement.specifier)).version
        hashes = "".join(f" \\\n    --hash={value}" for value in re.findall(r"--hash=(\S+)", entry))
        if name not in packages or applies(requirement, python):
            packages[name] = Package(name=name, version=version, text=f"{name}=={version}{hashes}")
    return packages


def needs_name(installed: Mapping[str, Installed]) -> bool:
    """Return whether packages need one of the name `tensorflow`, which would be a second one beside another name."""
    names = (read_requirement(text) for package in installed.values() for text in package.requires)
    return "tensorflow" in installed or any(read is not None and read.name == "tensorflow" for read in names)


def resolve(uv: Uv, question: Question) -> tuple[Package, ...]:
    """Return all packages that ``roots`` need, each with its hashes: those of the locked set if that has its version.

    Raises BuildError if there is no solution, or if the index does not answer.
    """
    solution: dict[str, Package] = {}
    refused: set[str] = set()  # packages of the environment that cannot have what they need
    moved: set[str] = set()  # packages that cannot stay, for which the locked version is preferred
    while True:
        wishes = list(_list_wishes(question, solution, refused))
        try:
            found = _ask(uv, question, wishes, moved)
        except UnsolvableError:
            if not wishes:
                raise
            free = _ask(uv, question, ())
            wrong = {wish.who for wish in wishes if not _holds(wish, free)}
            refused |= wrong or {wish.who for wish in wishes}
            continue
        if moving := {name for name, package in found.items() if _moves(package, question)} - moved:
            moved |= moving
        elif found.keys() <= solution.keys():
            return tuple(_explain(uv, question, wishes, found[name]) for name in sorted(found))
        solution |= found


def _moves(package: Package, question: Question) -> bool:
    there = question.installed.get(package.name)
    return there is not None and there.version.partition("+")[0] != package.version


def _explain(uv: Uv, question: Question, wishes: Sequence[_Wish], package: Package) -> Package:
    """Say why a package does not stay, in the words by which uv refuses the version that is installed."""
    there = question.installed.get(package.name)
    if there is None or package.wheel or not _moves(package, question):
        return package
    try:
        _ask(uv, question, [*wishes, _Wish("", Requirement(f"{package.name}=={there.version}"))])
    except UnsolvableError as error:
        range_ = rf"{re.escape(package.name)}[^\s,]*(?:,[<>=!~][^\s,]*)*"
        needs = re.search(rf"([\w.-]+)(?:\[\S+\])?(?:==\S+)? depends? on ({range_})", error.why)
        return replace(package, why=f"{needs[1]} needs {needs[2]}" if needs else "")
    return package


def _list_wishes(question: Question, solution: Collection[str], refused: Collection[str]) -> Iterator[_Wish]:
    for package in question.installed.values():
        if package.name in solution or package.name in refused or package.tensorflow:
            continue
        for text in package.requires:
            requirement = read_requirement(text)
            if requirement is None or canonicalize_name(requirement.name) not in solution:
                continue
            if requirement.specifier and applies(requirement, question.python):
                yield _Wish(package.name, requirement)


def _holds(wish: _Wish, packages: Mapping[str, Package]) -> bool:
    there = packages.get(canonicalize_name(wish.requirement.name))
    return there is None or wish.requirement.specifier.contains(there.version, prereleases=True)


def _ask(uv: Uv, question: Question, wishes: Iterable[_Wish], moved: Collection[str] = ()) -> dict[str, Package]:
    """Return uv's answer, which it has in a tenth of a second from its cache.

    ``moved``: names of packages for which the locked version is preferred to the installed one.
    """
    with tempfile.TemporaryDirectory() as folder:
        wanted, constraints, answer = (Path(folder, name) for name in ("wanted.in", "constraints.txt", "answer.txt"))
        own = [package.text.partition(" \\")[0] for package in (question.wheel,) if package]
        wanted.write_text("".join(f"{root}\n" for root in (*question.roots, *own)))
        constraints.write_text("".join(f"{wish.text}\n" for wish in wishes))
        known = {name: package.version for name, package in question.locked.items()}
        known |= {name: item.version for name, item in question.installed.items() if name not in moved}
        answer.write_text("".join(f"{name}=={version}\n" for name, version in known.items()))
        uv.run(
            *(
                "pip",
                "compile",
                "--quiet",
                "--no-header",
                "--no-annotate",
                "--generate-hashes",
                "--only-binary",
                ":all:",
            ),
            *("--python", question.python.path, "--constraints", constraints, "--output-file", answer, wanted),
        )
        return dict(_read_answer(answer.read_text(), question))


def _read_answer(text: str, question: Question) -> Iterator[tuple[str, Package]]:
    for entry in _ENTRY.split(text)[1:]:
        requirement = Requirement(_HASH.split(entry)[0].strip().rstrip("\\").strip())
        name = str(canonicalize_name(requirement.name))
        if question.wheel and question.wheel.name == name:
            yield name, question.wheel
            continue
        version = next(iter(requirement.specifier)).version
        locked = question.locked.get(name)
        hashed = locked.text if locked and locked.version == version else entry.rstrip("\n")
        yield name, Package(name=name, version=version, text=hashed)


def describe_wheel(wheel: Path, digest: str) -> Package:
    """Return the package of a wheel of one's own."""
    name, version = wheel.name.split("-")[:2]
    text = f"{name} @ {wheel.as_uri()} \\\n    --hash={digest}"
    with zipfile.ZipFile(wheel) as archive:
        files = dict(read_record(archive.read(f"{name}-{version}.dist-info/RECORD").decode()))
    return Package(name=canonicalize_name(name), version=version, text=text, wheel=wheel, digest=digest, files=files)
