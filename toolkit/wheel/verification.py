"""Whether a wheel's folder still is what its manifest says, and whether building it again gives the same."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from toolkit import manifest
from toolkit.errors import CheckError, IntegrityError
from toolkit.lock import Lock
from toolkit.manifest import Manifest
from toolkit.wheel import audit, bom, fitness, folder, inspection, provenance
from toolkit.wheel.plan import Means, WheelPlan


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        id: stable name.
        ok: whether it holds.
        evidence: what was seen.
    """

    id: str
    ok: bool
    evidence: str


def verify(path: Path) -> list[Finding]:
    """Look at everything again; findings that do not hold are in the list, not raised.

    Raises:
        IntegrityError: the files are not those that were written, so nothing that they say can be trusted.
    """
    digests = folder.check_sums(path)
    record = read_record(path)
    wheel = folder.find_wheel(path)
    found = inspection.inspect(wheel)
    return [
        Finding(id="sums", ok=True, evidence=f"{len(digests)} files"),
        *_check_wheel(record, found),
        _check_audit(record, wheel),
        _check_provenance(path, wheel, found.digest),
        _check_bill(path, found.digest),
    ]


def read_record(path: Path) -> Manifest:
    """The manifest of a wheel's folder.

    Raises:
        IntegrityError: there is none, or it is of something else.
    """
    record = manifest.read(path)
    if record is None or record.kind != "wheel":
        raise IntegrityError(
            f"{path} has no manifest of a wheel", remedy="give a folder that `toolkit build-wheel` made"
        )
    return record


def require(findings: list[Finding]) -> None:
    """Raises:
    CheckError: something does not hold.
    """
    wrong = [item for item in findings if not item.ok]
    if wrong:
        raise CheckError(
            f"{len(wrong)} of {len(findings)} findings do not hold",
            why="; ".join(f"{item.id}: {item.evidence}" for item in wrong),
            remedy="build the wheel again",
        )


def recall_plan(record: Manifest, *, ca_bundle: str = "", bazelrc: str = "", cache_id: str) -> WheelPlan:
    """The plan of a finished wheel, for a second build that uses nothing of the first.

    Args:
        record: the wheel's manifest.
        ca_bundle, bazelrc: secrets, which no manifest keeps.
        cache_id: name of cache mounts that nobody has used.
    """
    facts = record.facts
    means = Means(ca_bundle=ca_bundle, bazelrc=bazelrc)
    secrets = {"ca": means.ca_bundle, "bazelrc": means.bazelrc}
    arguments = {name: value for name, value in facts["arguments"].items() if name != "REMOTE_CACHE"}
    return WheelPlan(
        lock=Lock(spec=facts["lock"]["spec"], pins=facts["lock"]["pins"]),
        digest=facts["plan"],
        arguments={**arguments, "CACHE_ID": cache_id},
        contexts=dict(facts["contexts"]),
        secrets={name: str(Path(path).resolve()) for name, path in secrets.items() if path},
        fresh=True,
        origins=dict(facts["origins"]),
    )


def _check_wheel(record: Manifest, found: inspection.Inspection) -> Iterator[Finding]:
    yield Finding(id="digest", ok=record.digest == found.digest, evidence=found.digest)
    mismatches = list(fitness.find_mismatches(found, record.facts["lock"]["spec"]))
    yield Finding(
        id="versions",
        ok=not mismatches,
        evidence="; ".join(mismatches) or "those of the lock, in record and machine code",
    )
    recorded, seen = record.facts["inspection"], json.loads(json.dumps(asdict(found)))
    changed = sorted(name for name in seen if seen[name] != recorded.get(name))
    yield Finding(
        id="inspection",
        ok=not changed,
        evidence=f"changed: {', '.join(changed)}" if changed else f"GPU code for {', '.join(found.architectures)}",
    )


def _check_audit(record: Manifest, wheel: Path) -> Finding:
    seen, recorded = audit.audit(wheel), record.facts["auditwheel"]
    return Finding(id="auditwheel", ok=seen.platform == recorded["platform"], evidence=seen.platform)


def _check_provenance(path: Path, wheel: Path, digest: str) -> Finding:
    statement = _read(path / provenance.FILE)
    subject = {"name": wheel.name, "digest": {"sha256": digest.removeprefix("sha256:")}}
    ok = (
        statement.get("_type") == provenance.STATEMENT
        and statement.get("predicateType") == provenance.PREDICATE
        and subject in statement.get("subject", [])
    )
    return Finding(id="provenance", ok=ok, evidence="names this wheel" if ok else "does not name this wheel")


def _check_bill(path: Path, digest: str) -> Finding:
    bill = _read(path / bom.FILE)
    hashes = bill.get("metadata", {}).get("component", {}).get("hashes", [])
    ok = {"alg": "SHA-256", "content": digest.removeprefix("sha256:")} in hashes
    count = len(bill.get("components", []))
    return Finding(id="sbom", ok=ok, evidence=f"{count} components" if ok else "does not name this wheel")


def _read(path: Path) -> Mapping[str, Any]:
    try:
        value = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}
