"""Makes the record, the provenance and the bill of materials of a grafted wheel."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cyclonedx.model.component import Pedigree

from toolkit.base import files
from toolkit.base.errors import CheckError
from toolkit.base.manifest import Manifest
from toolkit.graft.graft_plan import GraftPlan
from toolkit.wheel import inspection, wheel_documents
from toolkit.wheel.inspection import Inspection
from toolkit.wheel.wheel_documents import TREE, BuildRun, describe_making, describe_package, describe_tool, split

if TYPE_CHECKING:
    from toolkit.graft.transplant import Outcome

BUILDER: Final = "urn:x-tensorflow-toolkit:builder:host"
"""This program and the machine: a user of the result trusts both."""


def describe(plan: GraftPlan, source: Path, wheel: Path, outcome: "Outcome", ran: BuildRun) -> Manifest:
    """Read a grafted wheel, and return its record.

    Raises CheckError if it is not what was asked for, and IntegrityError if a file in it does not match its RECORD.
    """
    original, grafted = inspection.inspect(source), inspection.inspect(wheel)
    wrong = [
        *find_mismatches(plan, grafted),
        *(
            f"its {name} differ from those of the original"
            for name in ("needed", "symbols", "pythons", "platforms")
            if getattr(original, name) != getattr(grafted, name)
        ),
    ]
    if wrong:
        raise CheckError(f"{wheel.name} is not the wheel that was asked for", why="; ".join(wrong))
    return Manifest(
        kind="wheel",
        digest=grafted.digest,
        parent={"kind": "wheel", "name": source.name, "digest": original.digest},
        facts={
            **describe_making(plan, ran),
            "graft": {"mode": plan.mode, **outcome.to_json()},
            "inspection": asdict(grafted),
        },
    )


def find_mismatches(plan: GraftPlan, wheel: Inspection) -> list[str]:
    """Return how a wheel differs from what a plan asks for."""
    spec = plan.lock.spec
    wrong = []
    if wheel.public_version != spec["tensorflow"]:
        wrong.append(f"it is TensorFlow {wheel.version}, not {spec['tensorflow']}")
    if not wheel.version.endswith(plan.local):
        wrong.append(f"its local version is not {plan.local}")
    for number in plan.architectures:
        if f"sm_{number}" not in wheel.architectures:
            wrong.append(f"its libraries hold no machine code for sm_{number}")
        if f"sm_{number}" not in wheel.build.capabilities:
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
    provenance = wheel_documents.describe_provenance(
        plan,
        {wheel.name: record.digest},
        ran,
        builder=BUILDER,
        external={"mode": plan.mode},
        internal={},
        dependencies=[
            {"name": inputs.source, "digest": split(inputs.original)},
            {"name": "ptxas", "digest": split(inputs.ptxas)},
            {"name": "recipe", "digest": split(plan.lock.pins["recipe"], TREE)},
        ],
    )
    files.write_json(folder / wheel_documents.PROVENANCE, provenance)
    files.write_atomically(folder / wheel_documents.BILL, _write_bill(plan, record, inputs))


def _write_bill(plan: GraftPlan, record: Manifest, inputs: Inputs) -> str:
    version = str(record.facts["inspection"]["version"])
    original = describe_package(
        "tensorflow", version.partition("+")[0], hashes=[inputs.original], bom_ref=inputs.source
    )
    grafted = describe_package("tensorflow", version, hashes=[record.digest], bom_ref="wheel")
    grafted.pedigree = Pedigree(ancestors=[original])
    ptxas = describe_tool("ptxas", plan.ptxas, hashes=[inputs.ptxas])
    return wheel_documents.write_bill(plan, grafted, record.digest, [ptxas], seconds=0)
