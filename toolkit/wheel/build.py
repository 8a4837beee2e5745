"""Runs a wheel's plan: watched while it runs, stopped cleanly, published whole or not at all."""

import importlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from toolkit import files, manifest
from toolkit.console import Console
from toolkit.engine import buildx
from toolkit.engine.client import require_buildx
from toolkit.errors import BuildError, PreflightError
from toolkit.manifest import Manifest
from toolkit.versions import Table
from toolkit.wheel import failure, staging
from toolkit.wheel.folder import find_wheel
from toolkit.wheel.plan import LOG_TARGET, WheelPlan
from toolkit.wheel.progress import Progress
from train.cores import count_cores

LOG_SECONDS = 120
"""How long fetching Bazel's log after a failure may take."""


@dataclass(frozen=True, kw_only=True)
class Built:
    """A wheel on disk.

    Attributes:
        folder: ``dist/NAME``.
        record: its manifest.
        reused: whether it was there already.
    """

    folder: Path
    record: Manifest
    reused: bool

    @property
    def wheel(self) -> Path:
        """The wheel's file."""
        return find_wheel(self.folder)


def find(plan: WheelPlan, dist: Path) -> Built | None:
    """The result of a plan, if it is there and whole."""
    folder = dist / plan.name
    record = manifest.read(folder)
    if record is None or record.facts.get("plan") != plan.digest:
        return None
    # A glance, since hashing a real wheel takes seconds: `toolkit verify` and `toolkit build-image` look at every byte.
    sizes = [path.stat().st_size for path in folder.glob("*.whl")]
    if sizes != [record.facts.get("inspection", {}).get("bytes")]:
        return None
    return Built(folder=folder, record=record, reused=True)


def build(plan: WheelPlan, matrix: Table, *, dist: Path, logs: Path, engine: str, console: Console) -> Built:
    """Build a wheel.

    Args:
        plan: what to build.
        matrix: the version table.
        dist: folder of results.
        logs: folder for what is said on the way, kept when it fails.
        engine: name and version of the container engine.
        console: where progress goes.

    Raises:
        BuildError, CheckError, EngineError, IntegrityError, PreflightError: it failed; ``dist`` is as it was.
    """
    require_buildx()
    files.require_writable(dist)
    # What reads ELF and writes bills of materials takes half a second to load: time to be had while Bazel works.
    threading.Thread(target=importlib.import_module, args=("toolkit.wheel.publication",), daemon=True).start()
    # Beside the target, so that the last step is a rename; hidden, so that nobody takes it for a result.
    with staging.claim(dist, plan.name) as place:
        command = plan.command(place.path)
        started = time.time()
        log, observe = logs / "build.log", _watch(console)
        run = uuid.uuid4().hex
        try:
            with tempfile.NamedTemporaryFile("w", prefix="toolkit-run-") as name:
                name.write(run)
                name.flush()
                argv = plan.command(place.path, run_name=Path(name.name))
                buildx.build(argv, log=log, console=console, step="wheel", observe=observe, keep=[place.lock])
        except BuildError as error:
            _require_space(place.path, error)
            _fetch_log(plan, logs / "bazel", run)
            raise failure.explain(error, (logs / "bazel" / "build.log", log)) from error
        from toolkit.wheel import publication

        circumstances = publication.Circumstances(
            started=started, finished=time.time(), host=describe_host(engine), command=command
        )
        console.heading("check", "reading the wheel: record, versions, GPU code, platform")
        record = publication.publish(place.path, dist / plan.name, plan, matrix, circumstances)
    return Built(folder=dist / plan.name, record=record, reused=False)


def describe_host(engine: str) -> dict[str, str]:
    """The machine, as far as it may matter to somebody who compares two builds."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cores": str(count_cores()),
        "memory_bytes": str(memory),
        "machine": platform.machine(),
        "kernel": platform.release(),
        "engine": engine,
    }


def _watch(console: Console) -> Callable[[str], str]:
    """What listens to the build's lines: the progress line for people, events for programs."""
    progress, began = Progress(), time.monotonic()

    def observe(line: str) -> str:
        if progress.hear(line) and console.json:
            event = {**progress.event, "seconds": round(time.monotonic() - began, 1)}
            print(json.dumps(event), file=sys.stderr, flush=True)
        return progress.summary

    return observe


def _require_space(folder: Path, error: BuildError) -> None:
    """Tell a full disk on this side, of which buildx says no more than ``error from receiver``."""
    try:
        with tempfile.TemporaryFile(dir=folder) as probe:
            os.posix_fallocate(probe.fileno(), 0, 1 << 20)
    except OSError as full:
        raise PreflightError(
            f"the disk of {folder.parent} filled up",
            why=full.strerror or str(full),
            remedy="free space, or give a folder on a larger disk with --out; nothing has to be compiled again",
        ) from error


def _fetch_log(plan: WheelPlan, folder: Path, run: str) -> None:
    """Bring the log and the events of a run of Bazel out of the cache mount into ``folder``.

    The folder is empty afterwards where the run did not come as far as Bazel: the log of an earlier run would explain
    another failure. Without a log the error stands as it is.
    """
    shutil.rmtree(folder, ignore_errors=True)
    # A new RUN_ID makes BuildKit copy again. Any form of --no-cache would empty the cache mount first, log and all.
    kept = replace(plan, fresh=False, arguments={**plan.arguments, "LOG_OF": run, "RUN_ID": run})
    argv = kept.command(folder, target=LOG_TARGET)
    try:
        subprocess.run(argv, capture_output=True, timeout=LOG_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return
