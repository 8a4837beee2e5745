"""Publishes a finished build as ``dist/NAME/``: checks it, describes it, and moves it there in one step."""

import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from toolkit.base import files, manifest
from toolkit.base.errors import IntegrityError, PreflightError
from toolkit.base.manifest import Manifest
from toolkit.versions import lock, numbers
from toolkit.versions.bounds import list_bounds, list_exact
from toolkit.versions.table import load_table
from toolkit.wheel import bazel_output, build_documents, cpu_targets, inspection, repack, wheel_documents, wheel_folder
from toolkit.wheel.build_plan import BuildPlan
from toolkit.wheel.wheel_documents import BuildRun, describe_making
from toolkit.wheel.wheel_plan import WheelPlan


def publish(staging: Path, target: Path, plan: BuildPlan, ran: BuildRun) -> Manifest:
    """Check what a build left in ``staging``, describe it, and move it to ``target`` in one step.

    The extra ``and-cuda`` of the wheel is changed to require what its GPUs allow, or the very versions of the build if
    the plan says so. It is removed from a wheel for processors. Raises IntegrityError if a file does not match its
    checksum, or if the Bazel that ran is not the pinned one. Raises CheckError if the wheel is not the one that was
    asked for, or if its tag promises too much. Raises PreflightError if the target cannot be written.
    """
    wheel_folder.check_sums(staging)
    wheel = wheel_folder.find_wheel(staging)
    spec = plan.lock.spec
    requires = _choose_requirements(plan)
    with files.writing(wheel):
        changed = repack.change_requirements(wheel, requires)
    inspected = inspection.inspect(wheel)
    inspection.require_match(inspected, spec)
    audited = inspection.audit(wheel)
    inspection.require_honest(inspected, audited)
    report = json.loads((staging / "build.json").read_text())
    packages = (staging / "packages.txt").read_text().split()
    bazel = build_documents.Program(version=report["bazel"], sha256=report["bazel_sha256"])
    _require_bazel(plan, bazel)
    bill = build_documents.write_bill(plan, inspected, bazel=bazel, packages=packages)
    files.write_atomically(staging / wheel_documents.BILL, bill)
    statement = build_documents.describe_provenance(plan, {wheel.name: inspected.digest}, ran, bazel)
    files.write_json(staging / wheel_documents.PROVENANCE, statement)
    record = Manifest(
        kind="wheel",
        digest=inspected.digest,
        parent={"kind": "lock", "name": lock.FILE, "digest": plan.lock.digest},
        facts={
            **describe_making(plan, ran),
            **_describe_inputs(plan),
            "build": report,
            "bazel": _read_outcome(staging / "events.json"),
            "inspection": asdict(inspected),
            "auditwheel": asdict(audited),
            "requires": requires if changed else {},
        },
    )
    finish(staging, target, plan, record)
    return record


def _choose_requirements(plan: BuildPlan) -> Mapping[str, str]:
    """Return what the extra ``and-cuda`` is to require. A wheel for processors has no such extra."""
    table, built = load_table(), plan.lock.versions
    if not built.cuda:
        return repack.NO_EXTRA
    served = numbers.list_plain(plan.lock.spec["capabilities"].split(","))
    return list_exact(table, built) if plan.exact else list_bounds(table, built, served)


def finish(staging: Path, target: Path, plan: WheelPlan, record: Manifest) -> None:
    """Write plan, record and sums of a wheel beside it, and move the complete folder to ``target``."""
    plan.write(staging, target.parent)
    manifest.write(staging, record)
    wheel_folder.write_sums(staging)
    move(staging, target)


def _require_bazel(plan: BuildPlan, ran: build_documents.Program) -> None:
    pinned = plan.lock.pins["bazel-sha256"]
    if "bazel" not in plan.origins and ran.sha256 != pinned:
        raise IntegrityError(
            "another Bazel ran than the one that is pinned",
            why=f"Bazel {ran.version} of sha256 {ran.sha256} ran; {pinned} is pinned",
            remedy="find out what installs `bazel` in the build image; to use another on purpose, give --bazel",
        )


def _describe_inputs(plan: BuildPlan) -> dict[str, Any]:
    return {
        "origins": plan.origins,
        "contexts": plan.describe_contexts(),
        "arguments": plan.arguments,
        "instructions": list(cpu_targets.list_instructions(plan.arguments.get("BAZEL_ARGUMENTS", "").split())),
    }


def _read_outcome(path: Path) -> dict[str, Any]:
    with path.open(errors="replace") as stream:
        return bazel_output.read_events(stream).record()


def move(staging: Path, target: Path) -> None:
    """Seal a complete folder, and move it to its name. Raises PreflightError if that fails."""
    wheel_folder.require_free(target)
    try:
        files.set_mode(staging, 0o755)
        wheel_folder.seal(staging)
        if target.exists():
            shutil.rmtree(target)
        staging.replace(target)
    except OSError as error:
        raise PreflightError(
            f"cannot write {target}", why=error.strerror or str(error), remedy="choose another folder with --out"
        ) from error
