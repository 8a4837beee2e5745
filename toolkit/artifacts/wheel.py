"""Reads the folder of a wheel that was built or grafted here, and compares it with its record."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from toolkit import digest, files, manifest, project, signing
from toolkit.artifacts.artifact import Artifact
from toolkit.errors import IntegrityError
from toolkit.findings import Finding, absent, check
from toolkit.manifest import Manifest
from toolkit.signing import Statement
from toolkit.wheel import bazel_output, wheel_documents, wheel_folder

_FACTS: Final = (
    ("plan",),
    *(("lock", "spec", name) for name in ("tensorflow", "python", "cuda", "cudnn", "capabilities")),
    ("inspection",),
)
"""What a manifest of a wheel must have; each path leads through objects."""

_BUILT: Final = (("auditwheel", "platform"), ("bazel", "executed"), ("bazel", "runners"))
_GRAFTED: Final = (("graft", "mode"), ("graft", "libraries"))
"""What it must have besides, for a wheel that was built or grafted."""


@dataclass(frozen=True, kw_only=True)
class Wheel(Artifact):
    """The folder of a wheel, built from source or grafted."""

    unread: str = ""  # why its code is not read and compared, which takes two minutes for TensorFlow's

    kind = "wheel"
    remedy = "build the wheel again"

    def make_statement(self) -> Statement:
        names = [path.name for path in self.folder.iterdir() if not signing.is_envelope(path.name)]
        return Statement(
            kind="wheel",
            subjects=digest.read_files(self.folder, names),
            predicate_type=wheel_documents.PREDICATE,
            predicate=read_predicate(self.folder),
        )

    def find_tensorflow(self) -> str:
        return str(read_record(self.folder).facts["lock"]["spec"]["tensorflow"])

    def check(self) -> list[Finding]:
        """Verify every file of the folder, and its documents. Raises IntegrityError if a file has changed."""
        digests = wheel_folder.check_sums(self.folder)
        record, wheel = read_record(self.folder), wheel_folder.find_wheel(self.folder)
        seen = digests[wheel.name]
        skipped = Finding(id="inspection", state="skipped", evidence=self.unread)
        return [
            check("sums", True, f"{len(digests)} files"),
            check("digest", record.digest == seen, seen),
            *([skipped] if self.unread else _check_wheel(record, wheel)),
            _check_provenance(self.folder, wheel, seen),
            _check_bill(self.folder, seen),
            *(_check_graft(self.folder, record) if is_grafted(record) else [_check_lock_of(record)]),
        ]


def read_record(path: Path) -> Manifest:
    """Return the manifest of a wheel's folder. Raises IntegrityError if there is none, or one of something else."""
    record = manifest.read(path)
    if record is None or record.kind != "wheel":
        raise IntegrityError(
            f"{path} has no manifest of a wheel", remedy="give a folder that `toolkit build-wheel` made"
        )
    required = _GRAFTED if is_grafted(record) else _BUILT
    if lacking := [".".join(names) for names in (*_FACTS, *required) if _look_up(record.facts, names) is None]:
        raise IntegrityError(f"the manifest of {path} lacks {', '.join(lacking)}", remedy="build the wheel again")
    return record


def is_grafted(record: Manifest) -> bool:
    """Return whether a wheel was made from another wheel, and not from source."""
    return "graft" in record.facts


def _look_up(value: object, names: Iterable[str]) -> object:
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def read_predicate(path: Path) -> Mapping[str, Any]:
    """Return the predicate of a wheel's provenance, which is signed too. Raises IntegrityError if there is none."""
    predicate = _read(path / wheel_documents.PROVENANCE).get("predicate")
    if not isinstance(predicate, dict):
        raise IntegrityError(f"{path} has no readable {wheel_documents.PROVENANCE}", remedy="build the wheel again")
    return predicate


def has_foreign_results(record: Manifest) -> bool:
    """Return whether a wheel holds results of a cache or an executor, which others may be able to write."""
    ran = record.facts.get("bazel", {})
    return bool(ran.get("cached") or ran.get("reused") or ran.get("remote"))


def describe_trust(record: Manifest) -> str:
    """Describe which results in a wheel come from caches and executors. Only a build without them can check these."""
    if is_grafted(record):
        return (
            "whoever published the original wheel is trusted, and the machine that grafted it; `toolkit reproduce` "
            "checks that"
        )
    outcome = bazel_output.describe_outcome(record.facts["bazel"])
    if has_foreign_results(record):
        trusted = "those who can write these caches, or run the executor, are trusted"
        return f"{outcome}: {trusted}; `toolkit reproduce` checks them"
    return f"{outcome}: only the machine that built it is trusted"


def _check_lock_of(record: Manifest) -> Finding:
    value, named = digest.digest_value(record.facts["lock"]), (record.parent or {}).get("digest")
    return check("lock", value == named, value if value == named else f"{value} in the manifest, which names {named}")


def _check_graft(path: Path, record: Manifest) -> Iterator[Finding]:
    """Compare the record of a graft with its plan, and look for its original in the locked sets."""
    from toolkit.graft.graft_plan import GraftPlan

    planned = GraftPlan.read(path)
    same = (planned.digest, planned.lock.describe()) == (record.facts["plan"], record.facts["lock"])
    yield check("plan", same, planned.digest if same else f"{planned.digest}, and the manifest names another")
    name, value = (str((record.parent or {}).get(field)) for field in ("name", "digest"))
    sums = f"--hash={value}"
    sets = [
        path.name
        for path in sorted(project.locate("docker/requirements").glob("cuda-*.txt"))
        if sums in path.read_text()
    ]
    if sets:
        yield check("original", True, f"{name}: in {sets[0]} of this clone")
    elif planned.wheel:
        yield absent("original", f"{name}: a wheel that was given, {value}")
    else:
        yield absent("original", f"no locked set of this clone has {name}: {value}")


def _check_wheel(record: Manifest, wheel: Path) -> Iterator[Finding]:
    # These are slow to load.
    from toolkit.graft import graft_documents
    from toolkit.graft.graft_plan import GraftPlan
    from toolkit.wheel import inspection

    facts, grafted = inspection.inspect(wheel), is_grafted(record)
    mismatches = (
        graft_documents.find_mismatches(GraftPlan.read(wheel.parent), facts)
        if grafted
        else list(inspection.find_mismatches(facts, record.facts["lock"]["spec"]))
    )
    yield check("versions", not mismatches, "; ".join(mismatches) or "those of the lock, in record and machine code")
    recorded, now = record.facts["inspection"], json.loads(json.dumps(asdict(facts)))
    changed = sorted(name for name in now if now[name] != recorded.get(name))
    evidence = f"changed: {', '.join(changed)}" if changed else f"GPU code for {', '.join(facts.architectures)}"
    yield check("inspection", not changed, evidence)
    if grafted:  # it links to what the original links to, and has its tags
        return
    audited = inspection.audit(wheel)
    yield check("auditwheel", audited.platform == record.facts["auditwheel"]["platform"], audited.platform)


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
