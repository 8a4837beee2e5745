"""Whether a wheel's folder still is what its manifest says, and whether building it again gives the same."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from toolkit import manifest
from toolkit.errors import IntegrityError
from toolkit.findings import Finding, check
from toolkit.lock import Lock
from toolkit.manifest import Manifest
from toolkit.wheel import bom, fitness, folder, inspection, log, provenance
from toolkit.wheel.plan import WheelPlan


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
        check("sums", True, f"{len(digests)} files"),
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


def recall_plan(record: Manifest, *, ca_bundle: str = "", bazelrc: str = "", cache_id: str) -> WheelPlan:
    """The plan of a finished wheel, for a second build that uses nothing of the first.

    Args:
        record: the wheel's manifest.
        ca_bundle, bazelrc: secrets, which no manifest keeps.
        cache_id: name of cache mounts that nobody has used.
    """
    facts = record.facts
    secrets = {"ca": ca_bundle, "bazelrc": bazelrc}
    # The services of the first build would give the same results again, wrong ones too.
    services = {"REMOTE_CACHE", "REMOTE_EXECUTOR", "REMOTE_INSTANCE_NAME"}
    arguments = {name: value for name, value in facts["arguments"].items() if name not in services}
    return WheelPlan(
        lock=Lock(spec=facts["lock"]["spec"], pins=facts["lock"]["pins"]),
        digest=facts["plan"],
        arguments={**arguments, "CACHE_ID": cache_id},
        contexts=dict(facts["contexts"]),
        secrets={name: str(Path(path).resolve()) for name, path in secrets.items() if path},
        fresh=True,
        origins=dict(facts["origins"]),
    )


def describe_trust(record: Manifest) -> str:
    """Say which results of others are in a wheel: nothing but a second build without them can check those."""
    ran = record.facts["bazel"]
    said = log.describe_outcome(ran)
    if ran.get("cached") or ran.get("reused") or ran.get("remote"):
        return f"{said}: those who can write these caches, or run the executor, are trusted; --rebuild checks them"
    return f"{said}: only the machine that built it is trusted"


def _check_wheel(record: Manifest, found: inspection.Inspection) -> Iterator[Finding]:
    yield check("digest", record.digest == found.digest, found.digest)
    mismatches = list(fitness.find_mismatches(found, record.facts["lock"]["spec"]))
    yield check("versions", not mismatches, "; ".join(mismatches) or "those of the lock, in record and machine code")
    recorded, seen = record.facts["inspection"], json.loads(json.dumps(asdict(found)))
    changed = sorted(name for name in seen if seen[name] != recorded.get(name))
    evidence = f"changed: {', '.join(changed)}" if changed else f"GPU code for {', '.join(found.architectures)}"
    yield check("inspection", not changed, evidence)


def _check_audit(record: Manifest, wheel: Path) -> Finding:
    seen, recorded = inspection.audit(wheel), record.facts["auditwheel"]
    return check("auditwheel", seen.platform == recorded["platform"], seen.platform)


def _check_provenance(path: Path, wheel: Path, digest: str) -> Finding:
    statement = _read(path / provenance.FILE)
    subject = {"name": wheel.name, "digest": {"sha256": digest.removeprefix("sha256:")}}
    ok = (
        statement.get("_type") == provenance.STATEMENT
        and statement.get("predicateType") == provenance.PREDICATE
        and subject in statement.get("subject", [])
    )
    return check("provenance", ok, "names this wheel" if ok else "does not name this wheel")


def _check_bill(path: Path, digest: str) -> Finding:
    bill = _read(path / bom.FILE)
    hashes = bill.get("metadata", {}).get("component", {}).get("hashes", [])
    ok = {"alg": "SHA-256", "content": digest.removeprefix("sha256:")} in hashes
    count = len(bill.get("components", []))
    return check("sbom", ok, f"{count} components" if ok else "does not name this wheel")


def _read(path: Path) -> Mapping[str, Any]:
    try:
        value = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}
