import os
import platform
import re
import shutil
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from toolkit import files, lock, manifest
from toolkit.console import Console
from toolkit.doctor import hardware
from toolkit.engine import buildx
from toolkit.engine.client import require_buildx
from toolkit.errors import BuildError
from toolkit.manifest import Manifest
from toolkit.settings import Settings
from toolkit.steps import Task
from toolkit.versions import Table
from toolkit.wheel import bazel_output, collection
from toolkit.wheel.build_plan import LOG_TARGET, WheelPlan
from toolkit.wheel.build_request import PlannedWheel
from toolkit.wheel.wheel_folder import find_wheel
from train.cores import count_cores
from train.system.progress import Estimate, Work

LOG_SECONDS = 120
"""Time limit for fetching Bazel's log after a failure."""


@dataclass(frozen=True, kw_only=True)
class BuiltWheel:
    folder: Path  # ``dist/NAME``
    record: Manifest  # its manifest
    reused: bool  # whether it was built before

    @property
    def wheel(self) -> Path:
        return find_wheel(self.folder)


def find(plan: WheelPlan, dist: Path) -> BuiltWheel | None:
    return find_recorded(plan.digest, dist / plan.name)


def find_recorded(plan: str, folder: Path) -> BuiltWheel | None:
    """Return the wheel of a folder, if its record names this plan, by its digest."""
    record = manifest.read(folder)
    if record is None or record.kind != "wheel" or record.facts.get("plan") != plan:
        return None
    # Only the size is compared, because hashing a real wheel takes seconds. `toolkit verify` does it.
    sizes = [path.stat().st_size for path in folder.glob("*.whl")]
    if sizes != [record.facts.get("inspection", {}).get("bytes")]:
        return None
    return BuiltWheel(folder=folder, record=record, reused=True)


def plan_task(
    planned: PlannedWheel, settings: Settings, console: Console, *, out: Path, dry_run: bool
) -> Task[BuiltWheel]:
    """Print the warnings about a wheel, and return the task that builds it or reuses it if it is up to date."""
    plan = planned.plan
    found = find(plan, out)
    if found is None or dry_run:
        _announce(planned, console)
    pinned = f"not every input is pinned: {', '.join(plan.floating)}" if plan.floating else "every input is pinned"
    console.heading("plan", f"{plan.name}: {pinned}")

    def make() -> BuiltWheel:
        logs = Path(settings.state) / f"wheel-{plan.name}"
        built = found or build(plan, planned.table, dist=out, logs=logs, engine=planned.engine, console=console)
        # Bazel does not fail if a cache does not answer. Only these numbers show it.
        console.heading("bazel", bazel_output.describe_outcome(built.record.facts["bazel"]))
        console.heading("wheel", f"{'reused' if built.reused else 'built'} {built.wheel.name}")
        return built

    return Task(plan.step(out), make)


def _announce(planned: PlannedWheel, console: Console) -> None:
    for line in (*planned.spec.warnings, *lock.describe_floating(planned.plan.floating)):
        console.say(f"  {line}")
    answered = planned.spec.answered
    console.say(f"  {len(answered)} known failures of upstream are handled; --verbose lists them")
    for line in answered:
        console.detail(f"  {line}")
    machine = hardware.estimate_build()
    console.heading("machine", "; ".join(filter(None, (machine.evidence, machine.remedy))))


def build(plan: WheelPlan, table: Table, *, dist: Path, logs: Path, engine: str, console: Console) -> BuiltWheel:
    """Build a wheel. Raises Build-, Check-, Engine-, Integrity- or PreflightError; ``dist`` is then unchanged."""
    require_buildx()
    files.require_writable(dist)
    if downloads := plan.contexts.get("downloads"):
        collection.require_whole(Path(downloads))
    # Beside the target, so that the last step is a rename.
    with files.stage(dist, plan.name) as staging:
        command = plan.command(staging.path)
        started = time.time()
        log, observe = logs / "build.log", _watch(console)
        run = uuid.uuid4().hex
        try:
            with tempfile.NamedTemporaryFile("w", prefix="toolkit-run-") as name:
                name.write(run)
                name.flush()
                argv = plan.command(staging.path, run_name=Path(name.name))
                buildx.build(argv, log=log, console=console, step="wheel", observe=observe, keep=[staging.lock])
        except BuildError as error:
            # buildx says only `error from receiver`.
            files.require_room(staging.path, f"{files.ROOM}; nothing has to be compiled again")
            _fetch_log(plan, logs / "bazel", run)
            raise bazel_output.explain(error, (logs / "bazel" / "build.log", log)) from error
        # Imported here because its libraries are slow to load, and an up-to-date wheel does not need them.
        from toolkit.wheel import publication

        ran = publication.BuildRun(started=started, finished=time.time(), host=describe_host(engine), command=command)
        console.heading("check", "reading the wheel: record, versions, GPU code, platform")
        record = publication.publish(staging.path, dist / plan.name, plan, table, ran)
    return BuiltWheel(folder=dist / plan.name, record=record, reused=False)


def describe_host(engine: str) -> dict[str, str]:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cores": str(count_cores()),
        "memory_bytes": str(memory),
        "machine": platform.machine(),
        "kernel": platform.release(),
        "engine": engine,
    }


_WARNING = re.compile(r"\bwheel: WARNING: (.+)")
"""A line of the build's step that a user should see while it runs."""


def _watch(console: Console) -> Callable[[str], Work | None]:
    estimate, began = Estimate(), time.monotonic()

    def observe(line: str) -> Work | None:
        if match := _WARNING.search(line):
            console.heading("bazel", match[1])
        work = bazel_output.read_work(line)
        if work and console.json:
            now = time.monotonic()
            estimate.feed(work, now)
            left = estimate.left(now)
            event = {"event": "progress", "done": work.done, "total": work.total, "action": work.text}
            event |= {"seconds": round(now - began, 1), "seconds_left": None if left is None else round(left, 1)}
            console.report(event)
        return work

    return observe


def _fetch_log(plan: WheelPlan, folder: Path, run: str) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    # A new RUN_ID makes BuildKit copy again. Any form of --no-cache would first empty the cache mount with the log.
    kept = replace(plan, fresh=False, arguments={**plan.arguments, "LOG_OF": run, "RUN_ID": run})
    argv = kept.command(folder, target=LOG_TARGET)
    try:
        subprocess.run(argv, capture_output=True, timeout=LOG_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return
