"""Writes which published advisories affect the TensorFlow of a wheel, an environment or an image: VEX of CycloneDX 1.6.

It stands beside the bill of materials, because advisories come later than a wheel and its bill. Each statement names
the component in that bill by a BOM-Link (https://cyclonedx.org/capabilities/bomlink/), as readers of both expect. What
the version table lists as affected is called exploitable. Of what it does not list nothing is said.
"""

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from urllib.parse import quote

from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.impact_analysis import ImpactAnalysisAffectedStatus, ImpactAnalysisResponse, ImpactAnalysisState
from cyclonedx.model.vulnerability import (
    BomTarget,
    BomTargetVersionRange,
    Vulnerability,
    VulnerabilityAnalysis,
    VulnerabilityRating,
    VulnerabilitySeverity,
    VulnerabilitySource,
)
from cyclonedx.output.json import JsonV1Dot6

from toolkit import __version__, digest, files, manifest
from toolkit.errors import IntegrityError, UsageError
from toolkit.record import Target, bill, software
from toolkit.versions import load_table
from toolkit.versions.table import Advisory
from toolkit.wheel import documents

KINDS: Final = ("wheel", "environment", "image")


def write(target: Target, state: Path) -> str:
    """Return the statements as JSON. The same record and the same version table give the same.

    Raises UsageError: it is of another kind; IntegrityError: its record or bill is damaged, or the table does not know
    its TensorFlow; as :func:`toolkit.record.bill.make`.
    """
    if target.kind not in KINDS:
        raise UsageError(
            f"--vex is for {', '.join(KINDS)}",
            why=f"this is of the kind {target.kind}",
            remedy="give the environment or image that it was made in",
        )
    tensorflow = software.find_tensorflow(target, state)
    found, table = software.list_advisories(tensorflow), load_table()
    serial, subject, ref = _find_component(target, state)
    link = f"urn:cdx:{serial}/1#{quote(ref, safe=':/@')}"
    known = digest.digest_value([link, table.updated, sorted(item.id for item in found)])
    bom = Bom(
        serial_number=uuid.uuid5(uuid.NAMESPACE_URL, known),
        vulnerabilities=[_describe(item, tensorflow, link) for item in found],
    )
    bom.metadata.component = Component(name=subject, type=ComponentType.LIBRARY, version=tensorflow, bom_ref="subject")
    bom.metadata.timestamp = datetime.fromisoformat(str(table.updated)).replace(tzinfo=UTC)
    bom.metadata.tools.components.add(Component(name="toolkit", version=__version__, type=ComponentType.APPLICATION))
    return str(JsonV1Dot6(bom).output_as_string(indent=2))


def _find_component(target: Target, state: Path) -> tuple[str, str, str]:
    """Return the serial number of the bill, and the name and the reference of TensorFlow in it."""
    if target.kind != "wheel":
        made = bill.make(target, state)
        for part in made.components:
            if part.name in manifest.PUBLISHED:
                return str(made.serial_number), part.name, str(part.bom_ref)
        raise IntegrityError(f"the bill of {target.path} has no TensorFlow", remedy="make it again")
    match files.read_json(target.folder / documents.BILL):
        case {"serialNumber": str(serial), "metadata": {"component": {"name": str(name), "bom-ref": str(ref)}}}:
            return serial.removeprefix("urn:uuid:"), name, ref
    raise IntegrityError(f"{target.folder} has no readable {documents.BILL}", remedy="build the wheel again")


def _describe(item: Advisory, tensorflow: str, link: str) -> Vulnerability:
    severity = VulnerabilitySeverity(item.severity) if item.severity else VulnerabilitySeverity.UNKNOWN
    source = VulnerabilitySource(name=item.sources[0])
    affected = BomTargetVersionRange(version=tensorflow, status=ImpactAnalysisAffectedStatus.AFFECTED)
    return Vulnerability(
        id=item.id,
        bom_ref=item.id,
        source=source,
        ratings=[VulnerabilityRating(source=source, severity=severity)],
        description=item.what,
        recommendation=f"Update to TensorFlow {item.fixed}." if item.fixed else None,
        analysis=VulnerabilityAnalysis(
            state=ImpactAnalysisState.EXPLOITABLE,
            responses=list(_list_responses(item)),
            detail=item.ours or None,
        ),
        affects=[BomTarget(ref=link, versions=[affected])],
    )


def _list_responses(item: Advisory) -> Iterator[ImpactAnalysisResponse]:
    if item.fixed:
        yield ImpactAnalysisResponse.UPDATE
