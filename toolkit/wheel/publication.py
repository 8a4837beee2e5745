"""From the files of a finished build to ``dist/NAME/``: checked, described, and there at once or not at all."""

import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from toolkit import files, manifest
from toolkit.errors import BuildError, PreflightError
from toolkit.manifest import Manifest
from toolkit.matrix import Matrix
from toolkit.wheel import audit, bom, events, fitness, inspection, provenance, sums
from toolkit.wheel.plan import WheelPlan

KIND = "wheel"


@dataclass(frozen=True, kw_only=True)
class Circumstances:
    """Where and when a build ran.

    Attributes:
        started, finished: seconds since 1970.
        host: cores, memory, kernel of the machine, engine and its version.
        command: what was run.
    """

    started: float
    finished: float
    host: Mapping[str, str]
    command: tuple[str, ...]


def find_wheel(folder: Path) -> Path:
    """The one wheel of a folder.

    Raises:
        BuildError: there is none, or more than one.
    """
    wheels = sorted(folder.glob("*.whl"))
    if len(wheels) != 1:
        raise BuildError(
            f"{len(wheels)} wheels where one was expected",
            why=", ".join(path.name for path in wheels),
            remedy="look into the build log",
        )
    return wheels[0]


def publish(staging: Path, target: Path, plan: WheelPlan, matrix: Matrix, circumstances: Circumstances) -> Manifest:
    """Check what a build left in ``staging``, describe it, and move it to ``target`` in one step.

    Raises:
        IntegrityError: a file is not what the build wrote down.
        CheckError: the wheel is not the one that was asked for.
        PreflightError: the target cannot be written.
    """
    sums.check(staging)
    wheel = find_wheel(staging)
    found = inspection.inspect(wheel)
    fitness.check(found, plan.lock.spec)
    packages = (staging / "packages.txt").read_text().split()
    files.write_atomically(staging / bom.FILE, bom.write(plan, found, packages, matrix))
    statement = provenance.describe(
        plan,
        {wheel.name: found.digest},
        started=circumstances.started,
        finished=circumstances.finished,
        builder=circumstances.host,
    )
    files.write_json(staging / provenance.FILE, statement)
    record = Manifest(
        kind=KIND,
        digest=found.digest,
        parent={"kind": "lock", "digest": plan.lock.digest, "name": plan.lock.rung},
        facts=_gather(staging, plan, found, audit.audit(wheel), circumstances),
    )
    manifest.write(staging, record)
    sums.write(staging)
    _move(staging, target)
    return record


def _gather(
    staging: Path, plan: WheelPlan, found: inspection.Inspection, view: audit.Audit, circumstances: Circumstances
) -> dict[str, Any]:
    with (staging / "events.json").open(errors="replace") as stream:
        outcome = events.read(stream)
    return {
        "plan": plan.digest,
        "lock": plan.lock.describe(),
        "floating": list(plan.lock.floating),
        "rung": plan.lock.rung,
        "origins": plan.origins,
        "contexts": plan.contexts,
        "arguments": plan.arguments,
        "command": list(circumstances.command),
        "seconds": round(circumstances.finished - circumstances.started, 1),
        "host": dict(circumstances.host),
        "build": json.loads((staging / "build.json").read_text()),
        "bazel": {**asdict(outcome), "cached": outcome.cached},
        "inspection": asdict(found),
        "auditwheel": asdict(view),
    }


def _move(staging: Path, target: Path) -> None:
    try:
        if target.exists():
            # What is there has no whole manifest, or the build would not have run.
            shutil.rmtree(target)
        staging.chmod(0o755)
        staging.replace(target)
    except OSError as error:
        raise PreflightError(
            f"cannot write {target}", why=error.strerror or str(error), remedy="choose another folder with --out"
        ) from error
