"""Finds what a path or a name means, and follows what it was made from.

Each kind of artifact is a class in a module of its own, and `KINDS` is the table of them. The class says how its
folders are recognised and found, what it was made from, what is signed and compared, and how lists and pages name it.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from toolkit.base import files, signing
from toolkit.base.errors import IntegrityError, UsageError
from toolkit.base.manifest import FILE
from toolkit.base.signing import Policy
from toolkit.records import origins
from toolkit.records.artifact import Artifact, Link
from toolkit.records.environment import Environment
from toolkit.records.graft import Graft
from toolkit.records.image import Image
from toolkit.records.own_environment import FOLDER, InstalledEnvironment
from toolkit.records.run import Run
from toolkit.records.smoke import SmokeReport, list_reports
from toolkit.records.wheel import BuiltWheel, Wheel

__all__ = [
    "KINDS",
    "Artifact",
    "BuiltWheel",
    "Environment",
    "Graft",
    "Image",
    "InstalledEnvironment",
    "Link",
    "Run",
    "SmokeReport",
    "Wheel",
    "compare",
    "find",
    "find_kind",
    "find_named",
    "list_folders",
    "list_signed",
    "open_wheel",
    "read_policy",
    "trace",
    "trace_named",
]

KINDS: Final[Sequence[type[Artifact]]] = (
    BuiltWheel,
    Graft,
    Environment,
    InstalledEnvironment,
    Image,
    SmokeReport,
    Run,
)
"""All artifacts, in the order in which one is made of another. Of those that recognize a record, the last is taken."""

KindT = TypeVar("KindT", bound=Artifact)

_OF_ENVIRONMENT: Final = "`toolkit install` leaves a record in an environment where it installs something"
_OF_WHEEL: Final = "a wheel is verified with its records: give the folder that it was published in, such as dist/NAME"
_REMEDY: Final = "give a folder of dist, of runs or of the state folder, a report of it, or an image as NAME:TAG"


def find(text: str, state: Path) -> Artifact:
    """Return what a path or image names.

    Raises UsageError if there is none, and IntegrityError if it is no artifact, or if it holds something else than its
    manifest says.
    """
    path = Path(text)
    if not path.exists():
        for kind in KINDS:
            if named := kind.find_by_name(text, state):
                return named
        raise UsageError(f"there is no {text}", remedy=_REMEDY)
    if path.is_file():
        for kind in KINDS:
            if single := kind.find_by_file(path, state):
                return single
    folder = path.parent if path.suffix == ".whl" or path.name == FILE else path
    if (folder / FOLDER / FILE).is_file():
        folder /= FOLDER
    by_content = [kind for kind in KINDS if any(any(folder.glob(mark)) for mark in kind.marks)]
    chosen = _recognize(folder, KINDS) or next(iter(by_content), None)
    if chosen is None or (path.suffix == ".whl" and not (folder / FILE).exists()):
        *nouns, last = dict.fromkeys(kind.noun for kind in KINDS)
        raise IntegrityError(
            f"{folder} holds no {', '.join(nouns)} or {last}",
            why=f"its {FILE} is missing, cannot be read, or is of a kind that this program does not know",
            remedy=_OF_ENVIRONMENT
            if (folder / "bin" / "python").exists()
            else _OF_WHEEL
            if path.suffix == ".whl"
            else _REMEDY,
        )
    if others := [kind.kind for kind in by_content if kind.kind != chosen.kind]:
        raise IntegrityError(
            f"{folder} holds what belongs to the kind {others[0]}, and its {FILE} is of the kind {chosen.kind}",
            why=f"a record of the kind {chosen.kind} does not cover it",
            remedy="fetch or make the folder again",
        )
    return chosen(folder=folder, state=state)


def find_kind(name: str) -> type[Artifact]:
    """Return the class of a kind, by the name that records have for it; of an unknown kind what all have in common."""
    return next((kind for kind in KINDS if kind.kind == name), Artifact)


def find_named(named: Mapping[str, Any], state: Path) -> Artifact | None:
    """Return the artifact that a record names as its parent; None if it is not on this machine.

    It is of the kind that the record names, also if its own record has been replaced by one of another kind.
    """
    kinds = [kind for kind in KINDS if kind.kind == named.get("kind")]
    for kind in kinds:
        if folder := kind.find_named_folder(named, state):
            return (_recognize(folder, kinds) or kind)(folder=folder, state=state)
    return None


def open_wheel(folder: Path) -> Wheel:
    """Return the wheel of a folder, by its record. Without one that can be read, it is looked at as a built wheel."""
    kinds = [kind for kind in KINDS if issubclass(kind, Wheel)]
    return (_recognize(folder, kinds) or BuiltWheel)(folder=folder, state=folder)


def list_signed() -> tuple[str, ...]:
    """Return what a key may sign, as policies name it: each kind of artifact."""
    return tuple(dict.fromkeys(kind.kind for kind in KINDS))


def read_policy(paths: Iterable[Path]) -> Policy:
    """Read public keys and policies. Raises UsageError if a file is neither."""
    return signing.read_policy(paths, list_signed())


def list_folders(place: Path, state: Path) -> list[tuple[Artifact, object]]:
    """Return the artifacts in a folder, such as ``dist``, by name, each with its record as JSON has it.

    Links are left out, and what none of `KINDS` is.
    """
    try:
        folders = sorted(path for path in place.iterdir() if path.is_dir() and not path.is_symlink())
    except OSError:
        return []
    records = ((folder, files.read_json(folder / FILE)) for folder in folders)
    return [
        (kind(folder=folder, state=state), record)
        for folder, record in records
        if (kind := _choose(folder, record, KINDS))
    ]


def _recognize(folder: Path, kinds: Sequence[type[KindT]]) -> type[KindT] | None:
    return _choose(folder, files.read_json(folder / FILE), kinds)


def _choose(folder: Path, record: object, kinds: Sequence[type[KindT]]) -> type[KindT] | None:
    return next((kind for kind in reversed(kinds) if kind.recognizes(folder, record)), None)


def trace(artifact: Artifact) -> Link:
    """Return an artifact with the chain of what it was made from, by the records that are here. Nothing is compared."""
    root = Link(kind=artifact.kind, artifact=artifact)
    _follow(root, artifact.state, with_reports=not isinstance(artifact, SmokeReport))
    return root


def trace_named(parent: Mapping[str, Any] | None, state: Path) -> list[Link]:
    """Return the wheels and the locked set that a record names, each with the chain behind it."""
    links = origins.list_links(parent)
    for link in links:
        _follow_parent(link, state, with_reports=False)
    return links


def compare(artifact: Artifact) -> Link:
    """Return an artifact with its chain, compared with their records. Raises what :meth:`Link.compare` raises."""
    root = trace(artifact)
    root.compare()
    return root


def _follow(link: Link, state: Path, *, with_reports: bool, before: frozenset[Artifact] = frozenset()) -> None:
    if link.artifact in before:
        link.artifact = None  # a damaged record names what was made from it
    if link.artifact is None:
        return
    if with_reports and link.artifact.holds:
        link.reports = [Link(kind=report.kind, artifact=report) for report in list_reports(link.artifact)]
    link.parents = link.artifact.list_parents()
    for parent in link.parents:
        _follow_parent(parent, state, with_reports=with_reports, before=before | {link.artifact})


def _follow_parent(link: Link, state: Path, *, with_reports: bool, before: frozenset[Artifact] = frozenset()) -> None:
    if link.place:
        # Whatever a forged record says, smoke checks ran in what has packages.
        kinds = [kind for kind in KINDS if kind.holds]
        link.artifact = (_recognize(link.place, kinds) or Environment)(folder=link.place, state=state)
    elif link.artifact is None:
        artifact = find_named(link.named, state)
        link.artifact = artifact.as_parent() if artifact else None
    _follow(link, state, with_reports=with_reports, before=before)
