"""The bill of materials of a wheel, in CycloneDX 1.6: what is in it, and what it was built with."""

import uuid
from collections.abc import Iterable
from datetime import UTC, datetime

from cyclonedx.model import ExternalReference, ExternalReferenceType, HashAlgorithm, HashType, Property, XsUri
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentScope, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

from toolkit import __version__, naming
from toolkit.lock import REPOSITORY
from toolkit.versions import Table
from toolkit.wheel.inspection import Inspection
from toolkit.wheel.plan import WheelPlan
from toolkit.wheel.provenance import Program

FILE = "sbom.cdx.json"
_PROPERTIES = ("python", "cuda", "cudnn", "capabilities")


def write(plan: WheelPlan, found: Inspection, matrix: Table, *, bazel: Program, packages: Iterable[str]) -> str:
    """Return the bill as JSON; equal inputs give equal text.

    Args:
        plan: what was built.
        found: the wheel.
        matrix: knows the component wheels that the CUDA asked for needs at run time.
        bazel: the one that ran.
        packages: Debian packages of the build image, ``name=version``.
    """
    subject = Component(
        name=found.name,
        version=found.version,
        type=ComponentType.LIBRARY,
        purl=PackageURL("pypi", name=found.name, version=found.version),
        bom_ref="wheel",
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=found.digest.removeprefix("sha256:"))],
        properties=[Property(name=f"{naming.LABEL_PREFIX}.{name}", value=value) for name, value in _describe(plan)],
        external_references=_find_source(plan),
    )
    runtime = list(_list_runtime(plan, matrix))
    tools = [*_list_tools(plan, bazel), *(_read_package(line) for line in packages)]
    bom = Bom(
        # A number made of the plan and the wheel, so that the same build has the same bill.
        serial_number=uuid.uuid5(uuid.NAMESPACE_URL, f"{plan.digest}/{found.digest}"),
        components=[*runtime, *tools],
    )
    bom.metadata.component = subject
    bom.metadata.timestamp = datetime.fromtimestamp(int(plan.lock.pins["source-date-epoch"]), UTC)
    bom.metadata.tools.components.add(Component(name="toolkit", version=__version__, type=ComponentType.APPLICATION))
    bom.register_dependency(subject, runtime)
    return JsonV1Dot6(bom).output_as_string(indent=2)


def _describe(plan: WheelPlan) -> Iterable[tuple[str, str]]:
    yield from ((name, plan.lock.spec[name]) for name in _PROPERTIES)
    if "source" in plan.origins:
        yield "source", plan.origins["source"]


def _find_source(plan: WheelPlan) -> list[ExternalReference]:
    """Return the commit that was built; a tree that the user brought along has no address."""
    if "source" in plan.origins:
        return []
    address = XsUri(f"git+{REPOSITORY}@{plan.lock.pins['tensorflow-commit']}")
    return [ExternalReference(type=ExternalReferenceType.VCS, url=address)]


def _list_runtime(plan: WheelPlan, matrix: Table) -> Iterable[Component]:
    spec = plan.lock.spec
    versions = {f"nvidia-{name}-cu12": value for name, value in matrix.cuda_rows[spec["cuda"]].components.items()}
    cudnn = matrix.cudnn_rows[spec["cudnn"]].wheel
    nccl = matrix.tensorflow(spec["tensorflow"]).nccl
    versions |= {name: value for name, value in (("nvidia-cudnn-cu12", cudnn), ("nvidia-nccl-cu12", nccl)) if value}
    for name, version in versions.items():
        purl = PackageURL("pypi", name=name, version=version)
        yield Component(name=name, version=version, type=ComponentType.LIBRARY, purl=purl, bom_ref=str(purl))


def _list_tools(plan: WheelPlan, bazel: Program) -> Iterable[Component]:
    yield _tool("bazel", bazel.version, [HashType(alg=HashAlgorithm.SHA_256, content=bazel.sha256)])
    for name, value in plan.lock.pins.items():
        if name.endswith(".patch"):
            hashes = [HashType(alg=HashAlgorithm.SHA_256, content=value.removeprefix("sha256:"))]
            yield Component(
                name=name, type=ComponentType.FILE, bom_ref=name, hashes=hashes, scope=ComponentScope.EXCLUDED
            )


def _read_package(line: str) -> Component:
    name, _, version = line.strip().partition("=")
    return _tool(name, version, [], PackageURL("deb", namespace="debian", name=name, version=version))


def _tool(name: str, version: str, hashes: Iterable[HashType], purl: PackageURL | None = None) -> Component:
    # Excluded: it made the wheel, and is not in it.
    return Component(
        name=name,
        version=version,
        type=ComponentType.APPLICATION,
        purl=purl,
        bom_ref=str(purl or name),
        hashes=hashes,
        scope=ComponentScope.EXCLUDED,
    )
