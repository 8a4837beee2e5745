"""Makes a wheel's provenance and its bill of materials in CycloneDX 1.6.

The provenance (https://slsa.dev/spec/v1.0/provenance) is an in-toto statement about the wheel alone
(https://github.com/in-toto/attestation; its package is not used, because it needs protobuf). What `--sign` signs has
the same predicate and every file of the folder.
"""

import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from cyclonedx.model import ExternalReference, ExternalReferenceType, HashAlgorithm, HashType, Property, XsUri
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentScope, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

from toolkit import __version__, naming
from toolkit.lock import REPOSITORY
from toolkit.versions import Table
from toolkit.versions.sets import name_wheel
from toolkit.wheel.build_inputs import IMAGE_SCHEME
from toolkit.wheel.build_options import list_options
from toolkit.wheel.build_plan import BuildPlan

if TYPE_CHECKING:
    from toolkit.wheel.inspection import Inspection

PROVENANCE = "provenance.intoto.json"
STATEMENT = "https://in-toto.io/Statement/v1"
PREDICATE = "https://slsa.dev/provenance/v1"
BUILD_TYPE = "urn:x-tensorflow-toolkit:build-wheel:v1"
BUILDER = "urn:x-tensorflow-toolkit:builder:docker-buildx"
"""This program, the container engine and the machine: a user of the result trusts all three."""

TREE = "toolkit-tree-sha256"
"""Algorithm name for :func:`toolkit.digest.digest_paths`; ``sha256`` would mean the digest of one file."""

BILL = "sbom.cdx.json"
_PROPERTIES = ("python", "cuda", "cudnn", "capabilities")


@dataclass(frozen=True, kw_only=True)
class Program:
    version: str
    sha256: str


def describe_provenance(
    plan: BuildPlan,
    subjects: Mapping[str, str],
    *,
    started: float,
    finished: float,
    builder: Mapping[str, str],
    bazel: Program,
) -> dict[str, Any]:
    """Return the in-toto statement. ``subjects`` has the digest of each file by name, the wheel first.

    ``builder`` describes the machine; ``bazel`` is the one that ran, which need not be pinned.
    """
    # SLSA requires the external parameters to be complete.
    external = {
        option.recorded: plan.arguments[option.argument]
        for option in list_options().values()
        if option.recorded and option.argument in plan.arguments
    }
    versions = {name: builder[name] for name in ("engine", "kernel") if name in builder}
    return {
        "_type": STATEMENT,
        "subject": [{"name": name, "digest": split(value)} for name, value in subjects.items()],
        "predicateType": PREDICATE,
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": {"spec": dict(plan.lock.spec), "origins": plan.origins, **external},
                "internalParameters": {"arguments": plan.arguments, "plan": plan.digest},
                "resolvedDependencies": list(_list_dependencies(plan, bazel)),
            },
            "runDetails": {
                "builder": {"id": BUILDER, "version": {"toolkit": __version__, **versions}},
                "metadata": {
                    "invocationId": f"urn:uuid:{uuid.uuid4()}",
                    "startedOn": stamp(started),
                    "finishedOn": stamp(finished),
                },
            },
        },
    }


def _list_dependencies(plan: BuildPlan, bazel: Program) -> Iterator[dict[str, Any]]:
    pins, spec = plan.lock.pins, plan.lock.spec
    base = {"name": pins["base-image"], "uri": f"{IMAGE_SCHEME}{pins['base-image']}"}
    yield {**base, "digest": split(pins["base-digest"])} if pins["base-digest"] else base
    if "source" in plan.origins:
        yield _describe_origin("source", plan)
    else:
        yield {"uri": f"git+{REPOSITORY}", "digest": {"gitCommit": pins["tensorflow-commit"]}}
    if "bazel" in plan.origins:
        yield _describe_origin("bazel", plan)
    yield {"name": f"bazel-{bazel.version}", "digest": {"sha256": bazel.sha256}}
    for part in ("cuda", "cudnn"):
        yield {"name": f"redistrib_{spec[part]}.json", "digest": {"sha256": pins[f"{part}-redist-sha256"]}}
    for name, value in pins.items():
        if "/" in name:
            yield {"name": name, "digest": split(value)}
    yield {"name": "recipe", "digest": split(pins["recipe"], TREE)}


def _describe_origin(name: str, plan: BuildPlan) -> dict[str, Any]:
    identity, context = plan.origins[name], plan.contexts[name]
    if identity.startswith(IMAGE_SCHEME):
        return {"name": name, "uri": identity}
    return {"name": name, "digest": split(identity, "sha256" if "://" in context else TREE)}


def split(identity: str, sha256: str = "sha256") -> dict[str, str]:
    algorithm, _, value = identity.partition(":")
    return {{"git": "gitCommit", "sha256": sha256}[algorithm]: value}


def stamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def write_bill(plan: BuildPlan, found: "Inspection", matrix: Table, *, bazel: Program, packages: Iterable[str]) -> str:
    """Return the bill of materials as JSON. ``packages``: Debian packages of the build image, ``name=version``."""
    subject = Component(
        name=found.name,
        version=found.version,
        type=ComponentType.LIBRARY,
        purl=PackageURL("pypi", name=found.name, version=found.version),
        cpe=name_cpe(found.version),
        bom_ref="wheel",
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=found.digest.removeprefix("sha256:"))],
        properties=[Property(name=f"{naming.LABEL_PREFIX}.{name}", value=value) for name, value in _describe(plan)],
        external_references=_find_source(plan),
    )
    runtime = list(list_runtime(plan.lock.spec, matrix))
    tools = [*_list_tools(plan, bazel), *(_read_package(line) for line in packages)]
    bom = Bom(
        # Derived from the plan and the wheel, so that the same build has the same bill.
        serial_number=uuid.uuid5(uuid.NAMESPACE_URL, f"{plan.digest}/{found.digest}"),
        components=[*runtime, *tools],
    )
    bom.metadata.component = subject
    bom.metadata.timestamp = datetime.fromtimestamp(int(plan.lock.pins["source-date-epoch"]), UTC)
    bom.metadata.tools.components.add(Component(name="toolkit", version=__version__, type=ComponentType.APPLICATION))
    bom.register_dependency(subject, runtime)
    return JsonV1Dot6(bom).output_as_string(indent=2)


def _describe(plan: BuildPlan) -> Iterable[tuple[str, str]]:
    yield from ((name, plan.lock.spec[name]) for name in _PROPERTIES)
    if "source" in plan.origins:
        yield "source", plan.origins["source"]


def _find_source(plan: BuildPlan) -> list[ExternalReference]:
    if "source" in plan.origins:
        return []
    address = XsUri(f"git+{REPOSITORY}@{plan.lock.pins['tensorflow-commit']}")
    return [ExternalReference(type=ExternalReferenceType.VCS, url=address)]


def name_cpe(version: str) -> str:
    """Return the CPE of TensorFlow, for scanners that look advisories up by it.

    The National Vulnerability Database has one name for all packages of TensorFlow, and no local versions.
    """
    return f"cpe:2.3:a:google:tensorflow:{version.partition('+')[0]}:*:*:*:*:*:*:*"


def list_runtime(spec: Mapping[str, str], matrix: Table) -> Iterable[Component]:
    """Yield the NVIDIA wheels that TensorFlow loads, for one CUDA and cuDNN."""
    wanted = {**matrix.cuda_rows[spec["cuda"]].components}
    wanted |= {"cudnn": matrix.cudnn_rows[spec["cudnn"]].wheel, "nccl": matrix.tensorflow(spec["tensorflow"]).nccl}
    versions = {name_wheel(name, spec["cuda"]): version for name, version in wanted.items() if version}
    for name, version in versions.items():
        purl = PackageURL("pypi", name=name, version=version)
        yield Component(name=name, version=version, type=ComponentType.LIBRARY, purl=purl, bom_ref=str(purl))


def _list_tools(plan: BuildPlan, bazel: Program) -> Iterable[Component]:
    yield describe_tool("bazel", bazel.version, [HashType(alg=HashAlgorithm.SHA_256, content=bazel.sha256)])
    for name, value in plan.lock.pins.items():
        if name.endswith(".patch"):
            hashes = [HashType(alg=HashAlgorithm.SHA_256, content=value.removeprefix("sha256:"))]
            yield Component(
                name=name, type=ComponentType.FILE, bom_ref=name, hashes=hashes, scope=ComponentScope.EXCLUDED
            )


def _read_package(line: str) -> Component:
    name, _, version = line.strip().partition("=")
    return describe_tool(name, version, [], PackageURL("deb", namespace="debian", name=name, version=version))


def describe_tool(name: str, version: str, hashes: Iterable[HashType], purl: PackageURL | None = None) -> Component:
    # Excluded: the tool made the wheel but is not part of it.
    return Component(
        name=name,
        version=version,
        type=ComponentType.APPLICATION,
        purl=purl,
        bom_ref=str(purl or name),
        hashes=hashes,
        scope=ComponentScope.EXCLUDED,
    )
