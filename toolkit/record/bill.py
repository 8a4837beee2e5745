"""Writes the bill of materials of an environment or an image, in CycloneDX 1.6, from what is recorded and installed.

A wheel has its own, written by its build (:mod:`toolkit.wheel.wheel_documents`). The bill of an environment or image
with such a wheel refers to that one by a BOM-Link (https://cyclonedx.org/capabilities/bomlink/).
"""

import re
import uuid
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from cyclonedx.model import ExternalReference, ExternalReferenceType, Property, XsUri
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL
from packaging.requirements import Requirement
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from toolkit import __version__, files, manifest, naming
from toolkit.artifacts import Artifact, find_named
from toolkit.artifacts.environment import read_packages
from toolkit.artifacts.image import is_packed
from toolkit.artifacts.origins import find_lock
from toolkit.artifacts.wheel import is_own_wheel
from toolkit.engine import packages
from toolkit.engine.client import connect, read_files
from toolkit.errors import IntegrityError, UsageError
from toolkit.graft.sources import Locked
from toolkit.manifest import Manifest
from toolkit.versions import load_table
from toolkit.wheel import wheel_documents
from toolkit.wheel.wheel_documents import describe_package, make_hash

STATUS: Final = "/var/lib/dpkg/status"
RELEASE: Final = "/usr/lib/os-release"
VENV: Final = "/opt/venv/pyvenv.cfg"
ALLOWED: Final = f"{naming.LABEL_PREFIX}.allowed-sha256"
"""Property with the hash of a file that the locked set allows: which of them was installed is not recorded."""

_MACHINES: Final = {"amd64": "x86_64", "arm64": "aarch64"}


def write(artifact: Artifact) -> str:
    """Return the bill of an environment or an image as JSON. The same record gives the same bill."""
    return str(JsonV1Dot6(make(artifact)).output_as_string(indent=2))


def make(artifact: Artifact) -> Bom:
    """Return the bill of an environment or an image.

    Raises UsageError if it is of another kind, IntegrityError if its record is damaged or if this clone does not have
    its locked set, and EngineError if no engine answers.
    """
    if not artifact.holds:
        raise UsageError(
            "a bill of materials is for an environment or an image",
            why=f"this is of the kind {artifact.kind}",
            remedy=f"the bill of a wheel is {wheel_documents.BILL} in its folder; what a run was made in has one too",
        )
    folder = artifact.locate()
    record = manifest.read(folder)
    if record is None or record.kind != artifact.kind:
        raise IntegrityError(f"{folder} has no manifest of an {artifact.kind}", remedy="make it again")
    parts = _list_environment(folder) if artifact.holds == "venv" else _list_image(record, artifact.state)
    wheel = find_named(record.parent or {}, artifact.state) if _has_own_wheel(record) else None
    is_image = artifact.holds == "image"
    return _join(folder, record, [_refer(part, wheel.folder if wheel else None) for part in parts], is_image=is_image)


def _join(folder: Path, record: Manifest, parts: list[Component], *, is_image: bool) -> Bom:
    subject = Component(
        name=str(record.facts.get("tag") or folder.name),
        type=ComponentType.CONTAINER if is_image else ComponentType.PLATFORM,
        bom_ref=record.kind,
        # That of an environment is the digest of its plan, and not of a file.
        hashes=[make_hash(record.digest)] if is_image else [],
        properties=[Property(name=f"{naming.LABEL_PREFIX}.digest", value=record.digest)],
    )
    bom = Bom(serial_number=uuid.uuid5(uuid.NAMESPACE_URL, record.digest), components=parts)
    bom.metadata.component = subject
    bom.metadata.timestamp = datetime.fromtimestamp(load_table().default.source_date_epoch, UTC)
    bom.metadata.tools.components.add(Component(name="toolkit", version=__version__, type=ComponentType.APPLICATION))
    bom.register_dependency(subject, parts)
    return bom


def _list_environment(folder: Path) -> Iterator[Component]:
    """Yield what is installed, with the hash of the file that each package came from."""
    recorded = packages.read(folder)
    for name, package in read_packages(folder / "venv").items():
        hashes = [recorded[name].digest] if name in recorded else []
        yield describe_package(name, package.version, hashes=hashes)


def _list_image(record: Manifest, state: Path) -> Iterator[Component]:
    """Yield the base image, its Debian packages, and the Python packages of the locked set with the wheel."""
    if is_packed(record):
        raise UsageError(
            "an image of Apptainer has no bill of materials", remedy="ask for that of the same image of Docker"
        )
    match record.facts:
        case {"base": {"name": str(base), "digest": str(value)}, "labels": dict(labels)}:
            yield Component(name=base, type=ComponentType.CONTAINER, bom_ref="base", hashes=[make_hash(value)])
        case _:
            raise IntegrityError(
                "the manifest of the image lacks its base or its labels", remedy="`toolkit build-image` makes it again"
            )
    client = connect()
    status, release, venv = (
        b"".join(read_files(client, record.digest, path, state).values()).decode(errors="replace")
        for path in (STATUS, RELEASE, VENV)
    )
    packages = list(parse_status(status))
    yield from describe_debian(packages, dict(re.findall(r'^(\w+)="?([^"\n]*)"?$', release, re.MULTILINE)))
    machine = next((_MACHINES.get(item["Architecture"], "") for item in packages if item["Package"] == "dpkg"), "")
    python = re.search(r"^version(?:_info)? *= *(\d+\.\d+\.\d+)", venv, re.MULTILINE)
    if not machine or not python:
        raise IntegrityError(
            f"the image {record.digest} does not say what its packages are for",
            why=f"it lacks the package dpkg in {STATUS} or a version in {VENV}",
            remedy="`toolkit build-image` makes an image that does",
        )
    link = {"digest": labels.get(naming.LOCK_LABEL)}
    locked = find_lock(link)
    if locked is None:
        raise IntegrityError(
            "no locked set of this clone is that of the image",
            why=f"the image has the set {link['digest']}",
            remedy="check out the revision that made it",
        )
    left_out = manifest.PUBLISHED if _has_own_wheel(record) else frozenset[str]()
    yield from (part for part in parse_locked(locked.read_text(), machine, python[1]) if part.name not in left_out)
    if _has_own_wheel(record):
        yield _describe_own_wheel(record.parent or {})
    if kernels := record.facts.get("kernels"):
        yield Component(name="kernels.so", type=ComponentType.FILE, bom_ref="kernels", hashes=[make_hash(kernels)])


def _describe_own_wheel(link: Mapping[str, Any]) -> Component:
    try:
        name, version, *_ = parse_wheel_filename(str(link.get("name")))
    except InvalidWheelFilename as error:
        raise IntegrityError("the manifest of the image names no wheel", why=str(error)) from error
    return describe_package(name, str(version), hashes=[str(link.get("digest"))])


def _has_own_wheel(record: Manifest) -> bool:
    return is_own_wheel(record.parent or {})


def _refer(part: Component, folder: Path | None) -> Component:
    """Refer to the bill of the wheel in a folder, if the component is that wheel."""
    if folder and part.name in manifest.PUBLISHED:
        bill = files.read_json(folder / wheel_documents.BILL)
        serial = str(bill.get("serialNumber", "")) if isinstance(bill, dict) else ""
        if serial.startswith("urn:uuid:"):
            link = XsUri(f"urn:cdx:{serial.removeprefix('urn:uuid:')}/1")
            part.external_references.add(ExternalReference(type=ExternalReferenceType.BOM, url=link))
    return part


def parse_status(text: str) -> Iterator[Mapping[str, str]]:
    """Yield the fields of each installed package in dpkg's file; a field's further lines are left out."""
    for stanza in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in stanza.splitlines() if re.match(r"[^\s:]+: ", line))
        if fields.get("Status", "").endswith(" installed") and fields.keys() >= {"Package", "Version", "Architecture"}:
            yield fields


def describe_debian(packages: Iterable[Mapping[str, str]], release: Mapping[str, str]) -> Iterator[Component]:
    """Yield a component for each package. ``release``: the fields of the image's ``os-release``."""
    distribution = release.get("ID", "debian")
    named = f"{distribution}-{release['VERSION_ID']}" if release.get("VERSION_ID") else distribution
    for fields in packages:
        name, version = fields["Package"], fields["Version"]
        qualifiers = {"arch": fields["Architecture"], "distro": named}
        purl = PackageURL("deb", namespace=distribution, name=name, version=version, qualifiers=qualifiers)
        yield Component(name=name, version=version, type=ComponentType.LIBRARY, purl=purl, bom_ref=str(purl))


def parse_locked(text: str, machine: str, python: str) -> Iterator[Component]:
    """Yield the packages of a locked set for a machine and a Python, each with all hashes that the set allows.

    ``machine`` and ``python`` are such as ``x86_64`` and ``3.11.2``.
    """
    place = {"platform_machine": machine, "python_full_version": python, "python_version": python.rpartition(".")[0]}
    for line in text.replace("\\\n", " ").splitlines():
        named, _, rest = line.partition(" --hash=")
        if not rest or line.startswith("#"):
            continue
        wanted = Requirement(named.strip())
        if wanted.marker and not wanted.marker.evaluate(place):
            continue
        version = str(wanted.specifier).removeprefix("==")
        part = describe_package(canonicalize_name(wanted.name), version, hashes=[])
        entry = Locked(name=wanted.name, entry=line)
        part.properties.update(Property(name=ALLOWED, value=allowed) for allowed in sorted(entry.digests))
        yield part
