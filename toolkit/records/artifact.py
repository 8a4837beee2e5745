"""Defines what all artifacts have in common, and the chain of what an artifact was made from.

An artifact knows its own record alone: what it says of files, who signed it, and which artifacts it was made from. A
:class:`Link` is a place in the chain. It holds the findings about one artifact, and the links behind it.
"""

import shlex
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, Self

from toolkit.base import signing
from toolkit.base.errors import ToolkitError
from toolkit.base.findings import Finding, check, prefix
from toolkit.base.signing import Policy, Statement

UNREADABLE: Final = "its record cannot be read"


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What a page says of one matter: values by their names, and perhaps rows of further values."""

    id: str
    title: str
    caption: str
    values: Mapping[str, object] = field(default_factory=dict)
    columns: Sequence[str] = ()  # the names of the values in each row; the first is a text, the others are numbers
    rows: Sequence[Sequence[object]] = ()
    rows_caption: str = ""
    sizes: Collection[int] = ()  # the columns that hold numbers of bytes
    notes: Sequence[str] = ()  # what is said below the first value of each row


@dataclass(frozen=True, kw_only=True)
class Artifact(ABC):
    """Something that the toolkit made, with its record."""

    folder: Path  # of its record
    state: Path  # the folder with the records of environments and images
    reference: str = ""  # the name or id of an image; empty if it is given by its record

    kind: ClassVar[str]  # what records and signatures call it
    noun: ClassVar[str]  # what people call it; `toolkit ls` too
    title: ClassVar[str]  # what its page calls it
    remedy: ClassVar[str]  # what to do if it does not match its record
    meaning: ClassVar[str] = ""  # what pages say of it as a link of a chain
    digest_of: ClassVar[str] = "SHA-256"  # what the digest in its record is one of
    home: ClassVar[Literal["dist", "runs", "state", ""]] = ""  # where `toolkit ls` looks for folders of it
    cleaned: ClassVar[str] = ""  # how its folders in the state folder are called, which `toolkit clean` removes
    holds: ClassVar[Literal["", "venv", "image"]] = ""  # where its packages are; smoke checks can run there
    marks: ClassVar[tuple[str, ...]] = ()  # what only its folder holds; a forger chooses the record, and not this

    @classmethod
    def recognizes(cls, folder: Path, record: object) -> bool:  # noqa: ARG003 - a run overrides it
        """Return whether the record of a folder, as JSON has it, is that of such an artifact."""
        return isinstance(record, dict) and record.get("kind") == cls.kind

    @classmethod
    def find_by_name(cls, name: str, state: Path) -> Self | None:  # noqa: ARG003 - an image overrides it
        """Return the artifact of a name that is no path; None if artifacts of this kind have no such names."""
        return None

    @classmethod
    def find_by_file(cls, file: Path, state: Path) -> Self | None:  # noqa: ARG003 - a report overrides it
        """Return the artifact that consists of this one file; None if the file is none of this kind."""
        return None

    @classmethod
    def find_named_folder(cls, named: Mapping[str, Any], state: Path) -> Path | None:  # noqa: ARG003 - parents override it
        """Return the folder of the artifact that a record names as its parent; None if it is not on this machine."""
        return None

    def as_parent(self) -> "Artifact":
        """Return it with less to read and compare, for where something else was made from it."""
        return self

    @property
    def path(self) -> Path:
        """What is signed: the folder, or one file in it."""
        return self.folder

    @property
    def name(self) -> str:
        """How a command names it."""
        return str(self.path)

    def describe_place(self) -> dict[str, str]:
        """Return where it is, for programs."""
        return {"folder": str(self.folder)}

    def locate(self) -> Path:
        """Return the path beside which its signature is. Raises IntegrityError if it has no record here."""
        return self.path

    @abstractmethod
    def make_statement(self) -> Statement:
        """Return what a signature says, from the files that are here now.

        Raises IntegrityError if a file is missing or no regular file, or if there is no record here.
        """

    @abstractmethod
    def check(self) -> list[Finding]:
        """Compare it with its record, and not what it was made from. Raises IntegrityError if the record is damaged."""

    @abstractmethod
    def find_tensorflow(self) -> str:
        """Return its version of TensorFlow, by its record. Raises IntegrityError if the record says none."""

    def describe_trust(self) -> str:
        """Return who is trusted by whoever uses it, beyond what is compared; empty if there is nothing to say."""
        return ""

    def count_actions(self) -> dict[str, object]:
        """Return how much of what made it was taken from caches, by its record."""
        return {}

    def summarize(self, record: object) -> str:  # noqa: ARG002 - most kinds override it
        """Return what its record, as JSON has it, says of it in a few words."""
        try:
            return f"TensorFlow {self.find_tensorflow()}"
        except ToolkitError:
            return UNREADABLE

    def list_parents(self) -> list["Link"]:
        """Return what it was made from, by its record; nothing if the record cannot be read.

        The links name the parents. Whether these are on this machine is found by :func:`toolkit.records.trace`.
        """
        return []

    def check_parent(self, parent: "Link") -> list[Finding]:  # noqa: ARG002 - what has parents overrides it
        """Return whether a parent is what the record names. Clears ``parent.here`` if its files need not be read."""
        return []

    def has_read_parents(self, findings: Sequence[Finding]) -> bool:  # noqa: ARG002 - an image overrides it
        """Return whether `check`, with these findings, has seen enough to say something of the parents."""
        return True

    def check_signature(self, policy: Policy) -> Finding:
        """Check its own signatures alone."""
        try:
            place = self.locate()
        except ToolkitError as error:
            return replace(check("signature", False, error.what), remedy=error.remedy)
        if not signing.locate(place).exists():
            missing = f"the {self.noun} is not signed: {place}"
            remedy = f"if it is yours, `{self.describe_signing()}`; if not, ask whoever made it to sign it"
            return Finding(id="signature", state="absent", evidence=missing, remedy=remedy, unsigned=True)
        try:
            return signing.verify(place, self.make_statement(), policy)
        except ToolkitError as error:
            return replace(check("signature", False, error.what), remedy=signing.CHANGED)

    def describe_signing(self, key: str = "KEY") -> str:
        """Return the command that signs it."""
        return shlex.join(["toolkit", "sign", self.name, "--key", key])


@dataclass(kw_only=True)
class Link:
    """A place in the chain: an artifact, or what a record says of one that is not on this machine."""

    kind: str
    artifact: Artifact | None = None
    named: Mapping[str, Any] = field(default_factory=dict)  # how the record before it names it
    place: Path | None = None  # the folder of its record, where that is known
    damaged: str = ""  # name of the finding that its record is damaged; empty if that is an error
    here: bool = True  # whether its files are here, and were compared
    joints: list[Finding] = field(default_factory=list)  # whether it is the one that the record before it names
    findings: list[Finding] = field(default_factory=list)  # of the artifact alone
    signature: Finding | None = None
    parents: list["Link"] = field(default_factory=list)
    reports: list["Link"] = field(default_factory=list)  # of smoke checks in it

    def walk(self) -> Iterator["Link"]:
        """Yield this link and all behind it."""
        yield self
        for link in (*self.reports, *self.parents):
            yield from link.walk()

    @property
    def is_missing(self) -> bool:
        """Whether what a record names, or the record of that, is not on this machine."""
        behind = (*self.joints, *(item for item in self.findings if item.id == "manifest"))
        return any(item.state == "absent" for item in behind)

    def list_signable(self) -> list["Link"]:
        """Return this link, and those behind it that are on this machine; of reports, those that are signed."""
        reports = {id(report) for link in self.walk() for report in link.reports}
        return [
            link
            for link in self.walk()
            if link.artifact and (id(link) not in reports or signing.locate(link.artifact.path).exists())
        ]

    def compare(self, known: dict[Artifact, "Link"] | None = None) -> None:
        """Compare this artifact and all behind it with their records.

        ``known``: the links that were compared before, so that each artifact is read once. Raises IntegrityError if
        the record of this artifact is damaged, and EngineError.
        """
        known = {} if known is None else known
        if self.artifact is None:
            return
        self.findings = self.artifact.check()
        if not self.artifact.has_read_parents(self.findings):
            for parent in self.parents:
                parent.here = False
            return
        for parent in self.parents:
            parent.joints = self.artifact.check_parent(parent)
            if parent.here and parent.artifact:
                _compare_parent(parent, parent.artifact, known)

    def list_findings(self) -> list[Finding]:
        """Return what was found of this artifact and of those behind it. A name begins with the kinds of the links."""
        named = list(self.findings)
        for parent in self.parents:
            named += parent.joints
            named += prefix(parent.kind, parent.list_findings()) if parent.here else []
        return named


def _compare_parent(link: Link, artifact: Artifact, known: dict[Artifact, Link]) -> None:
    before = known.setdefault(artifact, link)
    if before is not link:
        link.findings, link.parents = before.findings, before.parents
        link.joints += [item for item in before.joints if item.id == link.damaged and item.state == "fail"]
        return
    try:
        link.compare(known)
    except ToolkitError as error:
        if not link.damaged:
            raise
        why = f"{artifact.path}: {': '.join(filter(None, (error.what, error.why)))}"
        link.joints = [item for item in link.joints if item.id != link.damaged]
        link.joints.append(check(link.damaged, False, why))
