"""Where things came from, looked for on this machine: locked sets in this clone, wheels in ``dist``."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from toolkit import digest, manifest, project
from toolkit.errors import ToolkitError
from toolkit.findings import Finding, absent, check, prefix

DIST = Path("dist")


def flatten(parent: Mapping[str, Any] | None) -> list[Mapping[str, Any]]:
    """A link of the chain and all links behind it that it names itself, nearest first."""
    links = []
    while parent:
        links.append(parent)
        parent = parent.get("parent")
    return links


def verify_origin(parent: Mapping[str, Any]) -> list[Finding]:
    """What an environment or image was made of: a wheel of ours, or a locked set."""
    findings = []
    for link in flatten(parent):
        if link.get("kind") == "lock":
            findings.append(_check_lock(link))
        elif link.get("kind") == "wheel" and not link.get("parent"):
            findings += _check_own_wheel(link)
    return findings


def find_lock(link: Mapping[str, Any]) -> Path | None:
    """The locked set of this clone with that digest."""
    sets = sorted(project.locate("docker/requirements").glob("*.txt"))
    return next((path for path in sets if digest.digest_file(path) == link.get("digest")), None)


def find_wheel(link: Mapping[str, Any]) -> Path | None:
    """The folder of a finished wheel with that digest, below the current folder's ``dist``."""
    for path in sorted(DIST.glob(f"*/{manifest.FILE}")):
        record = manifest.read(path.parent)
        if record and record.kind == "wheel" and record.digest == link.get("digest"):
            return path.parent
    return None


def _check_lock(link: Mapping[str, Any]) -> Finding:
    found = find_lock(link)
    if found:
        return check("lock", True, f"{found.name} of this clone")
    return absent("lock", f"no locked set of this clone has the digest of {link.get('name')}: {link.get('digest')}")


def _check_own_wheel(link: Mapping[str, Any]) -> list[Finding]:
    from toolkit.wheel import verification

    found = find_wheel(link)
    if found is None:
        return [absent("origin", f"no wheel in {DIST} has the digest of {link.get('name')}: {link.get('digest')}")]
    try:
        findings = verification.verify(found)
    except ToolkitError as error:
        return [check("origin", False, f"{found}: {error.what}: {error.why}")]
    return [check("origin", True, str(found)), *prefix("wheel", findings)]
