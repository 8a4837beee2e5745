"""Reads the folder of a grafted wheel, and compares it with its record, its plan and the locked set of its original."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolkit.base import files, project
from toolkit.base.console import Console
from toolkit.base.errors import IntegrityError
from toolkit.base.findings import Finding, absent, check
from toolkit.base.manifest import Manifest
from toolkit.records.artifact import Facts
from toolkit.records.wheel import Wheel
from toolkit.versions.settings import Settings

if TYPE_CHECKING:
    from toolkit.graft.graft_plan import GraftPlan
    from toolkit.wheel.inspection import Inspection


@dataclass(frozen=True, kw_only=True)
class Graft(Wheel):
    """The folder of a wheel that was made from another wheel, and not from source."""

    noun = "graft"
    made = "grafted"
    pinned_by = "plan"  # which holds the lock
    title = "Grafted wheel"
    home = "dist"
    remedy = "fetch or graft the wheel again"
    required = (("graft", "mode"), ("graft", "libraries"))

    @classmethod
    def recognizes(cls, folder: Path, record: object) -> bool:  # noqa: ARG003 - its record alone tells
        match record:
            case {"kind": "wheel", "facts": {"graft": _}}:
                return True
        return False

    def read_plan(self) -> "GraftPlan":
        plan = self._read_plan_alone()
        if not self._is_planned(plan, self.read_record()):
            raise IntegrityError(f"the plan in {self.folder} is of another wheel", remedy=self.remedy)
        return plan

    def find_mismatches(self, record: Manifest, inspected: "Inspection") -> list[str]:  # noqa: ARG002 - the plan tells
        from toolkit.graft import graft_documents  # is slow to load

        return graft_documents.find_mismatches(self._read_plan_alone(), inspected)

    def audit(self, record: Manifest, wheel: Path) -> Sequence[Finding]:  # noqa: ARG002 - see below
        return ()  # it links to what the original links to, and has its tags

    def check_origin(self, record: Manifest) -> Iterator[Finding]:
        planned = self._read_plan_alone()
        same = self._is_planned(planned, record)
        yield check("plan", same, planned.digest if same else f"{planned.digest}, and the manifest names another")
        yield self._check_original(record, planned)

    def describe_making(self, facts: Mapping[str, Any]) -> Facts:
        graft = dict(facts["graft"])
        libraries = [dict(library) for library in graft.get("libraries", [])]
        counts = ("containers", "changed", "kernels", "general", "moved")
        return Facts(
            id="graft",
            title="What was grafted",
            caption="The graft",
            values={
                "Mode": graft.get("mode"),
                "PTX modules": graft.get("texts"),
                "PTX modules from earlier grafts": graft.get("reused"),
                "Refused by ptxas": list(dict(graft.get("refused") or {})),
            },
            rows_caption="Libraries with GPU code",
            columns=("Library", "Fat binaries", "Rewritten", "New kernels", "PTX made general", "Moved", "Grown by"),
            rows=[
                (
                    str(library.get("name")),
                    *(library.get(name) for name in counts),
                    library.get("bytes_after", 0) - library.get("bytes_before", 0),
                )
                for library in libraries
            ],
            sizes={len(counts) + 1},
            notes=[_count_left(library.get("left")) for library in libraries],
        )

    @contextmanager
    def making_again(self, settings: Settings, console: Console, *, bazelrc: str) -> Iterator[Path]:  # noqa: ARG002 - no Bazel runs
        """Assemble everything anew, and yield the folder that has the wheel until the end."""
        from toolkit.graft import job
        from toolkit.graft.graft_plan import digest_recipe
        from toolkit.records.second_build import require_recipe

        plan = self.read_plan()
        require_recipe(digest_recipe(), plan.lock, "graft")
        with files.stage(self.folder.resolve().parent, plan.name) as claimed:
            # A folder of its own: the lock of the claimed one is held here, and a graft locks its ``dist``.
            yield job.graft(plan, settings, console, dist=claimed.path / "dist", fresh=True).folder

    def describe_trust(self) -> str:
        return (
            "whoever published the original wheel is trusted, and the machine that grafted it; `toolkit reproduce` "
            "checks that"
        )

    def _read_plan_alone(self) -> "GraftPlan":
        """Return the plan in the folder, without a look at the record."""
        from toolkit.graft.graft_plan import GraftPlan  # is slow to load

        return GraftPlan.read(self.folder)

    def _is_planned(self, plan: "GraftPlan", record: Manifest) -> bool:
        return bool((plan.digest, plan.lock.describe()) == (record.facts["plan"], record.facts["lock"]))

    def _check_original(self, record: Manifest, plan: "GraftPlan") -> Finding:
        """Look for the original wheel in the locked sets of this clone."""
        name, value = (str((record.parent or {}).get(field)) for field in ("name", "digest"))
        for path in sorted(project.locate("docker/requirements").glob("cuda-*.txt")):
            if f"--hash={value}" in path.read_text():
                return check("original", True, f"{name}: in {path.name} of this clone")
        if plan.wheel:
            return absent("original", f"{name}: a wheel that was given, {value}")
        return absent("original", f"no locked set of this clone has {name}: {value}")


def _count_left(left: object) -> str:
    """Return what a graft left as it was, and how often."""
    return ", ".join(f"{reason}: {number}" for reason, number in left.items()) if isinstance(left, Mapping) else ""
