import os
import platform
import re
import shutil
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from toolkit.base import files, programs, seals
from toolkit.base.console import Console
from toolkit.base.errors import BuildError
from toolkit.base.steps import Task
from toolkit.engine import buildx, effort
from toolkit.engine.client import require_buildx
from toolkit.versions import lock
from toolkit.versions.settings import Settings
from toolkit.wheel import bazel_output, collection, kernel_proof, wheel_folder
from toolkit.wheel.build_plan import LOG_TARGET, BuildPlan, PlannedWheel
from toolkit.wheel.wheel_folder import FinishedWheel
from train.cores import count_cores
from train.system.progress import Work

LOG_SECONDS = 120
"""Time limit for fetching Bazel's log after a failure."""


def plan_tasks(
    planned: PlannedWheel, settings: Settings, console: Console, *, out: Path, dry_run: bool
) -> list[Task[Any]]:
    """Print the warnings and facts that concern a build, and return its tasks. The last one makes the wheel.

    Before it, kernels are proven if that is asked for. Raises the error that keeps this machine from building, except
    in a dry run.
    """
    plan, state = planned.plan, Path(settings.state)
    if not dry_run:
        planned.prepare(state)
    _announce(planned, console)

    def make() -> FinishedWheel:
        logs = state / f"wheel-{plan.name}"
        built = build(plan, dist=out, logs=logs, engine=planned.images.engine, console=console)
        # Bazel does not fail if a cache does not answer. Only the numbers show it.
        console.heading("bazel", bazel_output.describe_outcome(built.record.facts["bazel"]))
        console.heading("wheel", f"built {built.wheel.name}")
        return built

    wanted = planned.options.prove_kernels
    proofs = [kernel_proof.plan_task(plan, state, console, wanted=wanted)] if wanted else []
    return [*proofs, Task(plan.step(out), make)]


def _announce(planned: PlannedWheel, console: Console) -> None:
    plan = planned.plan
    for warning in (*planned.spec.warnings, *lock.describe_floating(plan.floating)):
        console.say(f"  {warning}")
    problems = planned.spec.answered
    console.say(f"  {len(problems)} known upstream problems are handled (--verbose lists them)")
    for problem in problems:
        console.detail(f"  {problem}")
    machine = effort.estimate_build(len(planned.spec.numbers))
    console.heading("machine", "; ".join(filter(None, (machine.evidence, machine.remedy))))
    console.heading("plan", f"{plan.name}: {lock.describe_pinning(plan.floating)}")


def build(plan: BuildPlan, *, dist: Path, logs: Path, engine: str, console: Console) -> FinishedWheel:
    """Build a wheel, and return it as a folder below ``dist``.

    Raises BuildError, CheckError, EngineError, IntegrityError or PreflightError; ``dist`` is then unchanged.
    """
    require_buildx()
    files.require_writable(dist)
    wheel_folder.require_free(dist / plan.name)
    seals.make_key()  # before hours are spent
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
            # A full disk is the likely cause of `error from receiver`, which is all that buildx says.
            files.require_room(staging.path, f"{files.ROOM}; nothing has to be compiled again")
            _fetch_log(plan, logs / "bazel", run)
            raise bazel_output.explain(error, (logs / "bazel" / "build.log", log)) from error
        # Imported here because its libraries are slow to load, and an up-to-date wheel does not need them.
        from toolkit.wheel import publication
        from toolkit.wheel.wheel_documents import BuildRun

        ran = BuildRun(started=started, finished=time.time(), host=describe_host(engine), command=command)
        console.heading("check", "reading the wheel: record, versions, GPU code, platform")
        record = publication.publish(staging.path, dist / plan.name, plan, ran)
    return FinishedWheel(folder=dist / plan.name, record=record, reused=False)


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
    def observe(line: str) -> Work | None:
        if match := _WARNING.search(line):
            console.heading("bazel", match[1])
        return bazel_output.read_work(line)

    return observe


def _fetch_log(plan: BuildPlan, folder: Path, run: str) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    # A new RUN_ID makes BuildKit copy again. Any form of --no-cache would first empty the cache mount with the log.
    copying = replace(plan, fresh=False, arguments={**plan.arguments, "LOG_OF": run, "RUN_ID": run})
    argv = copying.command(folder, target=LOG_TARGET)
    try:
        programs.docker(argv).run(seconds=LOG_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return
