"""Reads a report of smoke checks, and names the environment or image that was checked."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from toolkit.base import digest, files, manifest
from toolkit.base.errors import EngineError, IntegrityError
from toolkit.base.findings import Finding, absent, check
from toolkit.base.signing import Statement
from toolkit.records.artifact import Artifact, Link
from toolkit.smoke import runner

TEST_RESULT: Final = "https://in-toto.io/attestation/test-result/v0.1"

_RESULTS: Final = {"ok": "passedTests", "fail": "failedTests"}


@dataclass(frozen=True, kw_only=True)
class SmokeReport(Artifact):
    """A report of smoke checks, in the folder of the environment or image that was checked."""

    report: str  # name of the file

    kind = "smoke"
    noun = "report"
    title = "Smoke report"
    remedy = "`toolkit smoke` writes it again"

    @classmethod
    def recognizes(cls, folder: Path, record: object) -> bool:  # noqa: ARG003 - it is a file, beside a record
        return False

    @classmethod
    def find_by_file(cls, file: Path, state: Path) -> Self | None:
        is_report = file.name.startswith(runner.REPORT) and file.suffix == ".json"
        return cls(folder=file.parent, state=state, report=file.name) if is_report else None

    @property
    def path(self) -> Path:
        return self.folder / self.report

    def check(self) -> list[Finding]:
        """Return whether the checks passed. Raises CheckError if the report is not valid."""
        report = runner.from_json(files.read_json(self.path))
        return [check("report", report.verdict == "pass", report.summary)]

    def list_parents(self) -> list[Link]:
        record = manifest.read(self.folder)
        if record is None:
            return [Link(kind="environment")]
        return [Link(kind=record.kind, named=record.describe(), place=self.folder)]

    def check_parent(self, parent: Link) -> list[Finding]:
        if parent.artifact:
            return []
        return [absent("parent", f"{self.folder} has no manifest of what was checked")]

    def find_tensorflow(self) -> str:
        return str(runner.from_json(files.read_json(self.path)).tensorflow)

    def make_statement(self) -> Statement:
        report = runner.from_json(files.read_json(self.path))
        record = manifest.read(self.folder)
        if record is None:
            raise IntegrityError(
                f"{self.folder} has no manifest of what was checked",
                why="a report is signed together with the environment or image that it is about",
                remedy="let the toolkit build the image, and check that one",
            )
        lists: dict[str, list[str]] = {name: [] for name in _RESULTS.values()}
        for item in report.checks:
            if item.state in _RESULTS:
                lists[_RESULTS[item.state]].append(item.id)
        return Statement(
            kind="smoke",
            subjects={record.kind: record.digest, **digest.read_files(self.folder, [self.report])},
            predicate_type=TEST_RESULT,
            predicate={
                "result": {"pass": "PASSED", "fail": "FAILED"}[report.verdict],
                "configuration": [{"name": self.report}],  # its name holds the digest of the checks and what was asked
                **lists,
            },
        )


def list_reports(artifact: Artifact) -> list[SmokeReport]:
    """Return the reports beside the record of an environment or image."""
    try:
        folder = artifact.locate()
    except (IntegrityError, EngineError):
        return []
    names = sorted(path.name for path in folder.glob(f"{runner.REPORT}*.json"))
    return [SmokeReport(folder=folder, state=artifact.state, report=name) for name in names]
