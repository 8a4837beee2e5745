"""Compiles TensorFlow's own GPU kernels out of the source tree before Bazel, which would fail on them after hours."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from toolkit.base import files
from toolkit.base.console import Console
from toolkit.base.errors import BuildError, CheckError
from toolkit.base.steps import Step, Task
from toolkit.engine import buildx
from toolkit.engine.client import require_buildx
from toolkit.wheel.build_plan import BuildPlan

TARGET: Final = "kernels-proof"
REPORT: Final = "kernels.json"
MISSING: Final = "missing header"
"""Cause of a failure that says nothing about the toolchain: Bazel generates the header, or a library of CUDA has it."""


@dataclass(frozen=True, kw_only=True)
class KernelReport:
    """What became of each CUDA file of a tree. Its form is that of docker/scripts/kernels/tree.py."""

    path: Path
    architectures: tuple[str, ...]  # such as sm_75
    rows: tuple[Mapping[str, Any], ...]  # file, seconds, kernels, registers, spills, cause, error

    @property
    def compiled(self) -> list[Mapping[str, Any]]:
        return [row for row in self.rows if not row["cause"]]

    @property
    def failed(self) -> list[Mapping[str, Any]]:
        """The files that the toolchain does not compile."""
        return [row for row in self.rows if row["cause"] not in {"", MISSING}]

    def summarize(self) -> str:
        compiled = self.compiled
        left = sum(row["cause"] == MISSING for row in self.rows)
        parts = [
            f"{len(compiled)} of {len(self.rows)} files compile for {', '.join(self.architectures)}",
            f"{sum(row['kernels'] for row in compiled):,} kernels",
            f"at most {max((row['registers'] for row in compiled), default=0)} registers",
            f"{sum(row['spills'] for row in compiled):,} bytes spilled",
        ]
        return ", ".join([*parts, *([f"{left} need a header that only Bazel has"] if left else [])])

    def render(self) -> str:
        """Return the table of all files, those that failed first, the slowest of the others next."""
        lines = [f"{'file':60} {'seconds':>8} {'kernels':>8} {'registers':>9} {'spills':>9}"]
        for row in sorted(self.rows, key=lambda row: (not row["cause"], -row["seconds"])):
            numbers = f"{row['kernels']:8} {row['registers']:9} {row['spills']:9}"
            outcome = f"  {row['cause']}: {row['error']}" if row["cause"] else numbers
            lines.append(f"{_shorten(row['file']):60} {row['seconds']:8.1f} {outcome}")
        return "\n".join(lines)


def plan_task(plan: BuildPlan, state: Path, console: Console, *, wanted: str) -> Task[KernelReport]:
    """Return the task that compiles kernels of a plan's tree: as many files as wanted, spread over it, or ``all``.

    The task raises CheckError if the toolchain does not compile one, and BuildError if the step does not end well.
    An interrupted proof resumes when it is run again.
    """
    proving = replace(plan, arguments={**plan.arguments, "KERNELS": wanted})
    folder = state / f"wheel-{plan.name}" / "kernels"

    def prove() -> KernelReport:
        require_buildx()
        files.require_writable(folder.parent)
        with files.stage(folder.parent, folder.name) as staging:
            command = proving.command(staging.path, target=TARGET)
            buildx.build(command, log=folder.parent / "kernels.log", console=console)
            staged = read(staging.path / REPORT)
            files.write_atomically(folder.parent / REPORT, (staging.path / REPORT).read_text())
        report = replace(staged, path=folder.parent / REPORT)
        console.detail(report.render())
        console.heading("kernels", f"{report.summarize()}; {report.path}")
        require(report)
        return report

    step = Step(
        title="kernels",
        commands=(proving.command(folder, target=TARGET),),
        inputs={"lock": plan.lock.digest, **plan.origins},
        outputs=(str(folder.parent / REPORT),),
    )
    return Task(step, prove)


def read(path: Path) -> KernelReport:
    """Read a report. Raises BuildError if it is not there, or of another form."""
    value: Any = files.read_json(path)
    try:
        rows, architectures = value["kernels"], value["architectures"]
        report = KernelReport(path=path, architectures=tuple(architectures), rows=tuple(rows))
        report.render()
    except (KeyError, TypeError, ValueError) as error:
        raise BuildError(f"{path} is no report of kernels", why=repr(error), remedy="run this again") from error
    return report


def require(report: KernelReport) -> None:
    """Raise CheckError, with the first of the files, if the toolchain does not compile one of them."""
    if not report.failed:
        return
    first = report.failed[0]
    raise CheckError(
        f"{len(report.failed)} of {len(report.rows)} files of GPU kernels do not compile",
        why=f"{first['file']}: {first['cause']}: {first['error']}",
        remedy=f"the whole table is in {report.path}; a patch can be added to bazel_patches, see its README.md",
    )


def _shorten(name: str) -> str:
    return name.removeprefix("tensorflow/core/").removeprefix("third_party/xla/")
