"""Makes the documents of a built or grafted wheel: provenance, and bill of materials in CycloneDX 1.6.

The provenance (https://slsa.dev/spec/v1.0/provenance) is an in-toto statement about the wheel alone
(https://github.com/in-toto/attestation; its package is not used, because it needs protobuf). What `--sign` signs has
the same predicate and every file of the folder.
"""

import uuid
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from toolkit import __version__
from toolkit.base import manifest
from toolkit.versions.set import Set
from toolkit.versions.sets import name_components
from toolkit.versions.table import load_table
from toolkit.wheel.wheel_plan import WheelPlan

if TYPE_CHECKING:
    from cyclonedx.model import HashType
    from cyclonedx.model.component import Component
    from packageurl import PackageURL

PROVENANCE: Final = "provenance.intoto.json"
STATEMENT: Final = "https://in-toto.io/Statement/v1"
PREDICATE: Final = "https://slsa.dev/provenance/v1"
TREE: Final = "toolkit-tree-sha256"
"""Algorithm name for :func:`toolkit.base.digest.digest_paths`; ``sha256`` would mean the digest of one file."""

BILL: Final = "sbom.cdx.json"


@dataclass(frozen=True, kw_only=True)
class BuildRun:
    """The run of the command that made a wheel."""

    started: float  # started, finished: seconds since 1970
    finished: float
    host: Mapping[str, str]  # cores, memory and kernel of the machine, and the engine with its version
    command: tuple[str, ...]


def describe_making(plan: WheelPlan, ran: BuildRun) -> dict[str, Any]:
    """Return what the record of a wheel says of its plan and of the command that made it."""
    return {
        "plan": plan.digest,
        "lock": plan.lock.describe(),
        "level": plan.level,
        "floating": list(plan.floating),
        "command": list(ran.command),
        "seconds": round(ran.finished - ran.started, 1),
        "host": dict(ran.host),
    }


def describe_provenance(
    plan: WheelPlan,
    subjects: Mapping[str, str],
    ran: BuildRun,
    *,
    builder: str,
    external: Mapping[str, Any],
    internal: Mapping[str, Any],
    dependencies: Iterable[Mapping[str, Any]],
) -> dict[str, Any]:
    """Return the in-toto statement about files. ``subjects`` has the digest of each by name, the wheel first.

    ``external``: what the user chose. ``internal``: what follows from it. ``dependencies``: what went into the wheel.
    """
    programs = {name: ran.host[name] for name in ("engine", "kernel") if ran.host.get(name)}
    return {
        "_type": STATEMENT,
        "subject": [{"name": name, "digest": split(value)} for name, value in subjects.items()],
        "predicateType": PREDICATE,
        "predicate": {
            "buildDefinition": {
                "buildType": plan.BUILD_TYPE,
                "externalParameters": {"spec": dict(plan.lock.spec), **external},
                "internalParameters": {**internal, "plan": plan.digest},
                "resolvedDependencies": list(dependencies),
            },
            "runDetails": {
                "builder": {"id": builder, "version": {"toolkit": __version__, **programs}},
                "metadata": {
                    "invocationId": f"urn:uuid:{uuid.uuid4()}",
                    "startedOn": stamp(ran.started),
                    "finishedOn": stamp(ran.finished),
                },
            },
        },
    }


def split(identity: str, sha256: str = "sha256") -> dict[str, str]:
    """Return an identity as a set of digests. ``sha256``: how the set names the algorithm of that name."""
    algorithm, _, value = identity.partition(":")
    return {{"git": "gitCommit", "sha256": sha256}[algorithm]: value}


def stamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def write_bill(
    plan: WheelPlan, subject: "Component", digest: str, tools: Iterable["Component"], *, seconds: int
) -> str:
    """Return the bill of materials of a wheel as JSON. ``seconds``: the time in the bill, in seconds since 1970.

    ``subject``: the wheel, whose file has this digest. ``tools``: what made it and is no part of it.
    """
    from cyclonedx.model.bom import Bom
    from cyclonedx.model.component import Component, ComponentType
    from cyclonedx.output.json import JsonV1Dot6

    runtime = list_runtime(plan.lock.spec)
    # The number is derived from the plan and the wheel, so that the same wheel has the same bill.
    number = uuid.uuid5(uuid.NAMESPACE_URL, f"{plan.digest}/{digest}")
    bom = Bom(serial_number=number, components=[*runtime, *tools])
    bom.metadata.component = subject
    bom.metadata.timestamp = datetime.fromtimestamp(seconds, UTC)
    bom.metadata.tools.components.add(Component(name="toolkit", version=__version__, type=ComponentType.APPLICATION))
    bom.register_dependency(subject, runtime)
    with warnings.catch_warnings():
        if not runtime:  # a wheel for processors loads nothing of these, of which the library warns
            warnings.simplefilter("ignore", UserWarning)
        return JsonV1Dot6(bom).output_as_string(indent=2)


def describe_package(name: str, version: str, *, hashes: Iterable[str] = (), **known: Any) -> "Component":
    """Return the component of a Python package: TensorFlow, NVIDIA's libraries and all others.

    ``hashes``: digests of its file. ``known``: further fields of the component.
    """
    from cyclonedx.model.component import Component, ComponentType
    from packageurl import PackageURL

    purl = PackageURL("pypi", name=name, version=version)
    values: dict[str, Any] = {"purl": purl, "bom_ref": str(purl), "hashes": [make_hash(value) for value in hashes]}
    if name in manifest.PUBLISHED:
        values["cpe"] = name_cpe(version)
    return Component(name=name, version=version, type=ComponentType.LIBRARY, **values | known)


def name_cpe(version: str) -> str:
    """Return the CPE of TensorFlow, for scanners that look advisories up by it.

    The National Vulnerability Database has one name for all packages of TensorFlow, and no local versions.
    """
    return f"cpe:2.3:a:google:tensorflow:{version.partition('+')[0]}:*:*:*:*:*:*:*"


def list_runtime(spec: Mapping[str, str]) -> list["Component"]:
    """Return the NVIDIA wheels that TensorFlow loads, for one CUDA and cuDNN; none for the processor."""
    components = name_components(load_table(), Set.of(spec)) if spec.get("cuda") else {}
    return [describe_package(name, version) for name, version in components.items()]


def describe_tool(
    name: str, version: str, *, hashes: Iterable[str] = (), purl: "PackageURL | None" = None
) -> "Component":
    from cyclonedx.model.component import Component, ComponentScope, ComponentType

    # Excluded: the tool made the wheel but is not part of it.
    return Component(
        name=name,
        version=version,
        type=ComponentType.APPLICATION,
        purl=purl,
        bom_ref=str(purl or name),
        hashes=[make_hash(value) for value in hashes],
        scope=ComponentScope.EXCLUDED,
    )


def make_hash(digest: str) -> "HashType":
    from cyclonedx.model import HashAlgorithm, HashType

    return HashType(alg=HashAlgorithm.SHA_256, content=digest.removeprefix("sha256:"))
