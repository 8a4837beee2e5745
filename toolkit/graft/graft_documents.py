"""Makes the record, the provenance and the bill of materials of a grafted wheel."""

import uuid
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType, Pedigree
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

from toolkit import __version__, files
from toolkit.errors import CheckError
from toolkit.graft.graft_plan import GraftPlan
from toolkit.manifest import Manifest
from toolkit.versions import load_table
from toolkit.wheel import build_documents, inspection
from toolkit.wheel.inspection import Inspection
from toolkit.wheel.publication import BuildRun

if TYPE_CHECKING:
    from toolkit.graft.transplant import Outcome

BUILD_TYPE: Final = "urn:x-tensorflow-toolkit:graft:v1"
BUILDER: Final = "urn:x-tensorflow-toolkit:builder:host"
"""This program and the machine: a user of the result trusts both."""


def describe(plan: GraftPlan, source: Path, wheel: Path, outcome: "Outcome", ran: BuildRun) -> Manifest:
    """Read a grafted wheel, and return its record.

    Raises CheckError: it is not what was asked for; IntegrityError: a file in it does not match its RECORD.
    """
    before, found = inspection.inspect(source), inspection.inspect(wheel)
    wrong = [
        *find_mismatches(plan, found),
        *(
            f"its {name} differ from those of the original"
            for name in ("needed", "symbols", "pythons", "platforms")
            if getattr(before, name) != getattr(found, name)
        ),
    ]
    if wrong:
        raise CheckError(f"{wheel.name} is not the wheel that was asked for", why="; ".join(wrong))
    return Manifest(
        kind="wheel",
        digest=found.digest,
        parent={"kind": "wheel", "name": source.name, "digest": before.digest},
        facts={
            "plan": plan.digest,
            "lock": plan.lock.describe(),
            "level": plan.level,
            "floating": list(plan.lock.floating),
            "graft": {"mode": plan.mode, **outcome.to_json()},
            "inspection": asdict(found),
            "command": list(ran.command),
            "seconds": round(ran.finished - ran.started, 1),
            "host": dict(ran.host),
        },
    )  # fmt: skip


def find_mismatches(plan: GraftPlan, found: Inspection) -> list[str]:
    """Return how a wheel differs from what a plan asks for."""
    spec = plan.lock.spec
    wrong = []
    if found.public_version != spec["tensorflow"]:
        wrong.append(f"it is TensorFlow {found.version}, not {spec['tensorflow']}")
    if not found.version.endswith(plan.local):
        wrong.append(f"its local version is not {plan.local}")
    for number in plan.architectures:
        if f"sm_{number}" not in found.architectures:
            wrong.append(f"its libraries hold no machine code for sm_{number}")
        if f"sm_{number}" not in found.build.capabilities:
            wrong.append(f"its build_info does not name sm_{number}")
    return wrong


@dataclass(frozen=True, kw_only=True)
class Inputs:
    source: str  # file name of the original wheel
    original: str  # digest of the original wheel
    ptxas: str  # digest of ptxas


def write(folder: Path, plan: GraftPlan, record: Manifest, inputs: Inputs, ran: BuildRun) -> None:
    """Write provenance and bill of materials into the folder of a grafted wheel."""
    wheel = next(folder.glob("*.whl"))
    files.write_json(
        folder / build_documents.PROVENANCE, _describe_provenance(plan, wheel.name, record.digest, inputs, ran)
    )
    files.write_atomically(folder / build_documents.BILL, _write_bill(plan, record, inputs))


def _describe_provenance(plan: GraftPlan, name: str, value: str, inputs: Inputs, ran: BuildRun) -> dict[str, Any]:
    return {
        "_type": build_documents.STATEMENT,
        "subject": [{"name": name, "digest": build_documents.split(value)}],
        "predicateType": build_documents.PREDICATE,
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": {"spec": dict(plan.lock.spec), "mode": plan.mode},
                "internalParameters": {"plan": plan.digest},
                "resolvedDependencies": [
                    {"name": inputs.source, "digest": build_documents.split(inputs.original)},
                    {"name": "ptxas", "digest": build_documents.split(inputs.ptxas)},
                    {"name": "recipe", "digest": build_documents.split(plan.lock.pins["recipe"], build_documents.TREE)},
                ],
            },
            "runDetails": {
                "builder": {"id": BUILDER, "version": {"toolkit": __version__, "kernel": ran.host["kernel"]}},
                "metadata": {
                    "invocationId": f"urn:uuid:{uuid.uuid4()}",
                    "startedOn": build_documents.stamp(ran.started),
                    "finishedOn": build_documents.stamp(ran.finished),
                },
            },
        },
    }


def _write_bill(plan: GraftPlan, record: Manifest, inputs: Inputs) -> str:
    found = record.facts["inspection"]
    ancestor = _describe_wheel(str(found["version"]).partition("+")[0], inputs.original, ref=inputs.source)
    subject = _describe_wheel(str(found["version"]), record.digest, ref="wheel")
    subject.pedigree = Pedigree(ancestors=[ancestor])
    runtime = list(build_documents.list_runtime(plan.lock.spec, load_table()))
    tool = build_documents.describe_tool("ptxas", plan.lock.spec["cuda"], [_hash(inputs.ptxas)])
    # Derived from plan and wheel, so that the same graft has the same bill.
    bom = Bom(
        serial_number=uuid.uuid5(uuid.NAMESPACE_URL, f"{plan.digest}/{record.digest}"), components=[*runtime, tool]
    )
    bom.metadata.component = subject
    bom.metadata.timestamp = datetime.fromtimestamp(0, UTC)
    bom.metadata.tools.components.add(Component(name="toolkit", version=__version__, type=ComponentType.APPLICATION))
    bom.register_dependency(subject, runtime)
    return str(JsonV1Dot6(bom).output_as_string(indent=2))


def _describe_wheel(version: str, value: str, *, ref: str) -> Component:
    return Component(
        name="tensorflow",
        version=version,
        type=ComponentType.LIBRARY,
        purl=PackageURL("pypi", name="tensorflow", version=version),
        cpe=build_documents.name_cpe(version),
        bom_ref=ref,
        hashes=[_hash(value)],
    )


def _hash(value: str) -> HashType:
    return HashType(alg=HashAlgorithm.SHA_256, content=value.removeprefix("sha256:"))
