"""Reads the folder of a wheel, and compares it with its record.

What all wheels have is :class:`Wheel`. Here is the one that was built from source; a grafted one is in
:mod:`toolkit.records.graft`.
"""

import json
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from toolkit.base import digest, files, manifest, signing
from toolkit.base.console import Console
from toolkit.base.errors import IntegrityError, UnsupportedError
from toolkit.base.findings import Finding, check
from toolkit.base.manifest import Manifest
from toolkit.base.project import DIST
from toolkit.base.signing import Statement
from toolkit.records.artifact import UNREADABLE, Artifact, Facts
from toolkit.versions.settings import Settings
from toolkit.wheel import archive, wheel_documents, wheel_folder
from toolkit.wheel.wheel_plan import WheelPlan

if TYPE_CHECKING:
    from toolkit.wheel.build_plan import BuildPlan
    from toolkit.wheel.inspection import Inspection

Names = tuple[str, ...]
"""Names that lead through the objects of a record to a value."""

_FACTS: Final[Sequence[Names]] = (
    ("plan",),
    *(("lock", "spec", name) for name in ("tensorflow", "python")),
    ("inspection",),
)
"""What the manifest of every wheel must have."""

_OF_CUDA: Final[Sequence[Names]] = tuple(("lock", "spec", name) for name in ("cuda", "cudnn", "capabilities"))
"""What it must have besides, unless the wheel is for processors alone and it has none of them."""


@dataclass(frozen=True, kw_only=True)
class Wheel(Artifact):
    """The folder of a wheel: the wheel, its record, its plan, provenance and bill of materials."""

    unread: str = ""  # why its code is not read and compared, which takes two minutes for TensorFlow's

    kind = "wheel"
    made: ClassVar[str]  # in a word, how it was made: `grafted`
    pinned_by: ClassVar[str]  # the finding of `check_origin` about its lock
    required: ClassVar[Sequence[Names]]  # what its manifest must have besides

    @classmethod
    def find_named_folder(cls, named: Mapping[str, Any], state: Path) -> Path | None:  # noqa: ARG003 - it is in DIST
        """Return the folder whose manifest names this wheel.

        If there is none, return the one whose envelope names it. A forged manifest then does not hide a forged wheel.
        """
        if not is_own_wheel(named):
            return None
        value, folders = str(named.get("digest")), sorted(path for path in DIST.glob("[!.]*") if path.is_dir())
        for folder in folders:
            record = manifest.read(folder)
            if record and record.kind == "wheel" and record.digest == value:
                return folder
        return next((folder for folder in folders if signing.names(folder, value)), None)

    @abstractmethod
    def read_plan(self) -> WheelPlan:
        """Return the plan that it was made by. Raises IntegrityError if there is none, or one of another wheel."""

    @abstractmethod
    def find_mismatches(self, record: Manifest, inspected: "Inspection") -> list[str]:
        """Return how the wheel differs from what it was made to be. Raises IntegrityError if its plan is damaged."""

    @abstractmethod
    def audit(self, record: Manifest, wheel: Path) -> Sequence[Finding]:
        """Return what is found besides by reading the code of the wheel."""

    @abstractmethod
    def check_origin(self, record: Manifest) -> Iterator[Finding]:
        """Compare the record with what the wheel was made from. Raises IntegrityError if its plan is damaged."""

    @abstractmethod
    def describe_making(self, facts: Mapping[str, Any]) -> Facts:
        """Return what a page says of how it was made, by the facts of its record."""

    def making_again(self, settings: Settings, console: Console, *, bazelrc: str) -> AbstractContextManager[Path]:  # noqa: ARG002 - see below
        """Make the wheel again as it was made, and give the folder that has it until the end.

        ``bazelrc``: a file with the credentials of remote services. Raises IntegrityError if it has no plan,
        UnsupportedError if the recipe of this clone has changed, CheckError if a source tree has, and BuildError.
        """
        raise UnsupportedError(
            f"a {self.noun} cannot be made again", remedy=f"`toolkit verify {self.folder}` compares it"
        )

    @abstractmethod
    def describe_trust(self) -> str:
        """Describe whom one trusts with the contents of the wheel. Raises IntegrityError if its record is damaged."""

    def as_parent(self) -> "Wheel":
        return replace(self, unread=f"its sums hold; `toolkit verify {self.folder}` reads its code too")

    def summarize(self, record: object) -> str:
        read = manifest.parse(record)
        if read is None:
            return UNREADABLE
        spec = _look_up(read.facts, ("lock", "spec"))
        values = spec if isinstance(spec, dict) else {}
        words = [f"TensorFlow {values.get('tensorflow', '?')}"]
        if values and "cuda" not in values:
            words.append("processor")
        else:
            words += [f"CUDA {values.get('cuda', '?')}", str(values.get("capabilities", "?"))]
        return ", ".join([*words, "signed"] if signing.locate(self.folder).exists() else words)

    def make_statement(self) -> Statement:
        names = [path.name for path in wheel_folder.list_files(self.folder) if path.name != signing.ENVELOPE]
        return Statement(
            kind="wheel",
            subjects=digest.read_files(self.folder, names),
            predicate_type=wheel_documents.PREDICATE,
            predicate=read_predicate(self.folder),
        )

    def find_tensorflow(self) -> str:
        return str(self.read_record().facts["lock"]["spec"]["tensorflow"])

    def count_actions(self) -> dict[str, object]:
        counts = self.read_record().facts.get("bazel", {})
        return {name: counts.get(name) for name in ("executed", "cached_by", "reused", "remote")}

    def read_record(self) -> Manifest:
        """Return its manifest. Raises IntegrityError if there is none, or if it is one of something else."""
        record = manifest.read(self.folder)
        if record is None or record.kind != "wheel":
            raise IntegrityError(
                f"{self.folder} has no manifest of a wheel", remedy="give a folder that `toolkit build-wheel` made"
            )
        of_cuda = _OF_CUDA if any(_look_up(record.facts, names) for names in _OF_CUDA) else ()
        needed = (*_FACTS, *of_cuda, *self.required)
        lacking = [".".join(names) for names in needed if _look_up(record.facts, names) is None]
        if lacking:
            raise IntegrityError(f"the manifest of {self.folder} lacks {', '.join(lacking)}", remedy=self.remedy)
        return record

    def check(self) -> list[Finding]:
        """Verify every file of the folder, and its documents. Raises IntegrityError if a file has changed."""
        digests = wheel_folder.check_sums(self.folder)
        record, wheel = self.read_record(), wheel_folder.find_wheel(self.folder)
        digest_now = digests[wheel.name]
        skipped = Finding(id="inspection", state="skipped", evidence=self.unread)
        return [
            check("sums", True, f"{len(digests)} files"),
            check("digest", record.digest == digest_now, digest_now),
            *([skipped] if self.unread else self._check_code(record, wheel)),
            _check_provenance(self.folder, wheel, digest_now),
            _check_bill(self.folder, digest_now),
            *self.check_origin(record),
        ]

    def _check_code(self, record: Manifest, wheel: Path) -> Iterator[Finding]:
        from toolkit.wheel import inspection  # is slow to load

        inspected = inspection.inspect(wheel)
        mismatches = self.find_mismatches(record, inspected)
        evidence = "; ".join(mismatches) or "those of the lock, in record and machine code"
        yield check("versions", not mismatches, evidence)
        recorded, now = record.facts["inspection"], json.loads(json.dumps(asdict(inspected)))
        changed = sorted(name for name in now if now[name] != recorded.get(name))
        evidence = f"changed: {', '.join(changed)}" if changed else f"GPU code for {', '.join(inspected.architectures)}"
        yield check("inspection", not changed, evidence)
        yield from self.audit(record, wheel)


@dataclass(frozen=True, kw_only=True)
class BuiltWheel(Wheel):
    """The folder of a wheel that was built from source."""

    noun = "wheel"
    made = "built"
    pinned_by = "lock"
    title = "Wheel"
    home = "dist"
    remedy = archive.REMEDY
    marks = ("*.whl",)
    required = (("auditwheel", "platform"), ("bazel", "executed"), ("bazel", "runners"))

    def read_plan(self) -> "BuildPlan":
        from toolkit.wheel.build_plan import BuildPlan  # is slow to load

        facts = self.read_record().facts
        plan = BuildPlan.read(self.folder)
        if plan.digest != facts["plan"]:
            raise IntegrityError(
                f"the plan in {self.folder} is of another wheel",
                why=f"the plan is {plan.digest}, and the manifest names {facts['plan']}",
                remedy=self.remedy,
            )
        return plan

    def find_mismatches(self, record: Manifest, inspected: "Inspection") -> list[str]:
        from toolkit.wheel import inspection  # is slow to load

        return list(inspection.find_mismatches(inspected, record.facts["lock"]["spec"]))

    def audit(self, record: Manifest, wheel: Path) -> Sequence[Finding]:
        from toolkit.wheel import inspection  # is slow to load

        platform = inspection.audit(wheel).platform
        return [check("auditwheel", platform == record.facts["auditwheel"]["platform"], platform)]

    def check_origin(self, record: Manifest) -> Iterator[Finding]:
        value, named = digest.digest_value(record.facts["lock"]), (record.parent or {}).get("digest")
        evidence = value if value == named else f"{value} in the manifest, which names {named}"
        yield check("lock", value == named, evidence)

    def describe_making(self, facts: Mapping[str, Any]) -> Facts:
        ran = dict(facts.get("bazel", {}))
        values = {
            "Actions that ran": ran.get("executed"),
            "From caches": ran.get("cached_by"),
            "On the remote executor": ran.get("remote"),
            "Unchanged since an earlier build": ran.get("reused"),
            "Runners": ran.get("runners"),
            "Level of its inputs": facts.get("level"),
            "Pins that float": facts.get("floating"),
        }
        return Facts(id="build", title="How it was built", caption="The build", values=values)

    def making_again(self, settings: Settings, console: Console, *, bazelrc: str) -> AbstractContextManager[Path]:
        from toolkit.records.second_build import building_again  # is slow to load

        requires = self.read_record().facts["requires"]
        dist = self.folder.resolve().parent
        return building_again(self.read_plan(), dist, requires, settings, console, bazelrc=bazelrc)

    def describe_trust(self) -> str:
        """Describe which results come from caches and executors. Only a build without them can check these."""
        from toolkit.wheel import bazel_output  # is slow to load

        counts = self.read_record().facts["bazel"]
        outcome = bazel_output.describe_outcome(counts)
        if counts.get("cached") or counts.get("reused") or counts.get("remote"):
            trusted = "those who can write these caches, or run the executor, are trusted"
            return f"{outcome}: {trusted}; `toolkit reproduce` checks them"
        return f"{outcome}: only the machine that built it is trusted"


def is_own_wheel(named: Mapping[str, Any]) -> bool:
    """Return whether a record names a wheel that was built or grafted here, and not a published one."""
    return named.get("kind") == "wheel" and not named.get("parent")


def read_predicate(path: Path) -> Mapping[str, Any]:
    """Return the predicate of a wheel's provenance, which is signed too. Raises IntegrityError if there is none."""
    predicate = _read(path / wheel_documents.PROVENANCE).get("predicate")
    if not isinstance(predicate, dict):
        raise IntegrityError(f"{path} has no readable {wheel_documents.PROVENANCE}", remedy=signing.CHANGED)
    return predicate


def _look_up(value: object, names: Iterable[str]) -> object:
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _check_provenance(path: Path, wheel: Path, value: str) -> Finding:
    statement = _read(path / wheel_documents.PROVENANCE)
    subject = {"name": wheel.name, "digest": {"sha256": value.removeprefix("sha256:")}}
    ok = (
        statement.get("_type") == wheel_documents.STATEMENT
        and statement.get("predicateType") == wheel_documents.PREDICATE
        and subject in statement.get("subject", [])
    )
    return check("provenance", ok, "names this wheel" if ok else "does not name this wheel")


def _check_bill(path: Path, value: str) -> Finding:
    bill = _read(path / wheel_documents.BILL)
    hashes = bill.get("metadata", {}).get("component", {}).get("hashes", [])
    ok = {"alg": "SHA-256", "content": value.removeprefix("sha256:")} in hashes
    count = len(bill.get("components", []))
    return check("sbom", ok, f"{count} components" if ok else "does not name this wheel")


def _read(path: Path) -> Mapping[str, Any]:
    value = files.read_json(path)
    return value if isinstance(value, dict) else {}
