"""Build a TensorFlow wheel: patch, configure, run Bazel, hand over one wheel and what belongs to it.

Exit codes: 0 done, 1 a patch does not apply, 2 usage, 3 not exactly one wheel, 6 nothing ran on the remote executor, 12
AVX where none was to be, 28 the disk is full, 29 that of the remote executor, 34 the remote executor does not answer or
stopped answering, 137 a compiler was killed for memory, otherwise Bazel's own.
"""

import errno
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from train.cores import count_cores  # mounted beside this package
from wheelbuild import (
    arguments,
    bazel,
    downloader,
    instructions,
    journal,
    machine,
    preparation,
    redaction,
    request,
    result,
    service,
    tag,
)
from wheelbuild.journal import Journal
from wheelbuild.preparation import BUILD, CACHE, PRIVATE, SECRETS, SOURCE
from wheelbuild.watchdog import Watchdog, watch_cache

OUT = Path("/out")
RAW_EVENTS = PRIVATE / "events.json"
NOTHING_REMOTE = 6
"""Exit code of a build that was to run on an executor and did not. Bazel has it for ``bazel run`` alone."""

REMOTE_FAILED = 34
"""Bazel's own code for a remote executor that fails, used for one that cannot be reached, too."""

REMOTE_FULL = 29
HAS_AVX = 12
"""Exit code of a build that was to do without AVX and did not."""

NEARLY_FULL = 1 << 30
"""Bytes. With fewer left here, a full disk is thought to be this one, although actions ran on an executor."""


def explain_failure(ended: bazel.Ended, wanted: request.Request, kills: int, log: str) -> int:
    code = ended.code
    if ended.trouble:
        print(f"wheel: the remote executor {ended.trouble}", file=sys.stderr)
        print("  try: this again once it answers; finished actions are kept", file=sys.stderr)
        return REMOTE_FAILED
    lines = log.splitlines()
    # The first error is the cause; with --keep_going or many jobs it is far from the end.
    first = next((number for number, line in enumerate(lines) if line.startswith(("ERROR:", "FATAL:"))), -20)
    said = "\n".join(lines[first:][:60])
    print(f"wheel: Bazel failed with exit code {code}; the target bazel-log has its whole log\n{said}", file=sys.stderr)
    if kills or bazel.KILLED.search(log):
        print(f"wheel: a process was killed for memory, with {wanted.jobs} jobs at once", file=sys.stderr)
        print(f"  try: BAZEL_JOBS={max(1, wanted.jobs // 2)}; compiled files are kept", file=sys.stderr)
        return 137
    if ended.full:
        return explain_full_disk(ended.full, executor=wanted.remote_executor)
    if wanted.remote_executor and bazel.SILENT.search(log):
        print("wheel: the remote executor may have a full disk: the action that failed said nothing", file=sys.stderr)
    # Where all actions are cached, Bazel ends with the code of what it does next: 38, the events cannot be uploaded.
    return REMOTE_FAILED if bazel.REFUSED in log else code


def explain_full_disk(said: str, executor: str = "") -> int:
    left = min(shutil.disk_usage(folder).free for folder in (CACHE, "/"))
    if executor and left >= NEARLY_FULL and not bazel.FULL_HERE.search(said):
        print(f"wheel: the disk of the remote executor is full: {said}", file=sys.stderr)
        print("  try: free space there; finished actions are kept", file=sys.stderr)
        return REMOTE_FULL
    free = ", ".join(f"{folder} {shutil.disk_usage(folder).free >> 20} MiB" for folder in (CACHE, "/"))
    print(f"wheel: the disk is full: {said}\n  free now: {free}", file=sys.stderr)
    print("  try: free space in the engine; compiled files are kept", file=sys.stderr)
    return errno.ENOSPC


def report_actions(processes: dict[str, int], *, other_cache: bool) -> int:
    """Print where the actions of a build with a remote executor ran; returns the exit code of the step.

    If actions ran, all of them on this machine, the executor was not used: an error, which nothing else would show.
    Hits in its own cache are a use of it, and leave the actions that are marked to run here. ``other_cache``: the cache
    is not its own.
    """
    places = bazel.count_actions(processes)
    said = f"{places.remote} on the remote executor, {places.cached} from a cache, {places.here} on this machine"
    print(f"wheel: actions: {said}", flush=True)
    if places.remote or not places.here or (not other_cache and processes.get("remote cache hit")):
        return 0
    print(f"wheel: no action ran on the remote executor, and {places.here} ran on this machine", file=sys.stderr)
    print("  try: remove --spawn_strategy and --strategy from the rc file and the arguments", file=sys.stderr)
    return NOTHING_REMOTE


def build(wanted: request.Request, kept: Journal) -> int:
    if trouble := service.find_trouble(wanted.remote_executor):
        # Bazel itself asks six times, and each time may take a minute where packets get lost.
        print(f"wheel: the remote executor does not answer: {trouble}", file=sys.stderr)
        return REMOTE_FAILED
    environment = preparation.prepare_environment()
    credentials = SECRETS / "bazelrc"
    try:
        redactor = preparation.prepare_redactor(credentials, environment)
    except redaction.UnsafeError as error:
        print(f"wheel: the rc file sets {error}; give a value that is no secret as an argument", file=sys.stderr)
        return 2
    configuration = arguments.compose_configure(wanted, python=sys.executable)
    if code := preparation.prepare_source(wanted, environment | configuration):
        return code
    trust = preparation.prepare_trust()
    preparation.prepare_downloads(CACHE / "repository")
    journal.remove_leaks(CACHE / "root")
    startup = arguments.compose_startup(
        cache=CACHE,
        logging=preparation.prepare_logging(),
        credentials=credentials if credentials.is_file() else None,
        trust=trust,
    )
    downloads, rules = BUILD / "downloads", PRIVATE / "downloader"
    answers = downloader.Downloader(downloader.read_unpinned(downloads))
    with answers.answering():
        rules.write_text(answers.compose_rules(all_=False))
        argv = ["bazel", *startup]
        argv += arguments.compose_build(
            wanted,
            cache=CACHE,
            events=RAW_EVENTS,
            downloads=downloads,
            trust=trust,
            rules=rules if answers.known else None,
        )
        said = f"wheel: {wanted.jobs} jobs, {wanted.memory} MiB, toolchain {wanted.toolchain}"
        print(f"{said}\n+ {' '.join(argv)}", flush=True)
        began, kills = time.monotonic(), machine.count_kills()
        argv, ended = run_bazel(argv, wanted, environment, kept.log, redactor.redact)
    seconds = time.monotonic() - began
    kept.write_events(RAW_EVENTS, redactor.redact_event)
    log = kept.log.read_text(errors="replace")
    if ended.code:
        return explain_failure(ended, wanted, machine.count_kills() - kills, log)
    program = bazel.identify(environment, SOURCE)
    facts = {
        "schema": 1,
        "bazel": program.version,
        "bazel_path": program.path,
        "bazel_sha256": program.sha256,
        "argv": argv,
        "toolchain": wanted.toolchain,
        "glibc": wanted.glibc,
        "configure": configuration,
        "jobs": wanted.jobs,
        "memory_mib": wanted.memory,
        "cores": count_cores(),
        "seconds": round(seconds, 1),
        "peak_memory_mib": machine.read_peak(),
    }
    return finish(wanted, kept, facts | {"processes": bazel.count_processes(log)})


def run_bazel(
    argv: list[str], wanted: request.Request, environment: dict[str, str], log: Path, redact: Callable[[str], str]
) -> tuple[list[str], bazel.Ended]:
    """Run Bazel; a build whose cache says nothing goes on without it. Returns the command that ended the build, too."""

    def run(argv: list[str], watchdog: Watchdog | None) -> bazel.Ended:
        return bazel.run(argv, environment=environment, folder=SOURCE, log=log, redact=redact, watchdog=watchdog)

    if wanted.remote_executor or not wanted.remote_cache:
        return argv, run(argv, Watchdog(wanted.remote_executor) if wanted.remote_executor else None)
    without = [*argv, arguments.WITHOUT_CACHE]
    if trouble := service.find_silence(wanted.remote_cache):
        print(f"wheel: WARNING: the remote cache does not answer: {trouble}; the build goes on without it", flush=True)
        return without, run(without, None)
    ended = run(argv, watch_cache(wanted.remote_cache))
    if not ended.trouble:
        return argv, ended
    print(f"wheel: WARNING: the remote cache {ended.trouble}; the build goes on without it", flush=True)
    return without, run(without, None)


def finish(wanted: request.Request, kept: Journal, facts: dict[str, Any]) -> int:
    if wanted.remote_executor and (code := report_actions(facts["processes"], other_cache=bool(wanted.remote_cache))):
        return code
    try:
        wheel = result.read_wheel_event(kept.events)
    except result.ResultError as error:
        print(f"wheel: {error}", file=sys.stderr)
        return 3
    if instructions.WITHOUT_AVX in wanted.extra:
        found = instructions.inspect(wheel, f"llvm-objdump-{wanted.llvm}")
        if found.refused:
            print("\n".join(instructions.explain(found)), file=sys.stderr)
            return HAS_AVX
        print(f"wheel: {found.instructions:,} instructions beyond x86-64-v2, all in functions that are chosen by cpuid")
        facts |= {"instructions": found.describe()}
    hand_over(wheel, kept, facts, platform=tag.name_platform(wanted.glibc, wanted.machine) if wanted.glibc else "")
    return 0


def hand_over(wheel: Path, kept: Journal, facts: dict[str, Any], *, platform: str = "") -> None:
    OUT.mkdir(exist_ok=True)
    wheel = tag.change(wheel, OUT, platform) if platform else Path(shutil.copyfile(wheel, OUT / wheel.name))
    packages = subprocess.run(
        ["dpkg-query", "--show", "--showformat", "${Package}=${Version}\n"], capture_output=True, text=True, check=True
    )
    for file in (kept.log, kept.events, Path("/proof/toolchain.json")):
        shutil.copyfile(file, OUT / file.name)
    (OUT / "packages.txt").write_text(packages.stdout)
    (OUT / "build.json").write_text(json.dumps(facts, indent=2) + "\n")
    result.write_sums(OUT)
    print(f"wheel: {wheel.name}, {wheel.stat().st_size:,} bytes, in {facts['seconds']} s")


def main() -> int:
    try:
        toolchain = preparation.read_toolchain()
        wanted = request.read_request(
            os.environ, cores=count_cores(), memory=machine.read_memory(), toolchain=toolchain
        )
        run = journal.read_run(SECRETS / "run", os.environ)
    except (request.UsageError, ValueError) as error:
        print(f"wheel: {error}", file=sys.stderr)
        return 2
    try:
        return build(wanted, journal.open_journal(CACHE / "log", run))
    except OSError as error:
        if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
            raise
        return explain_full_disk(str(error))


if __name__ == "__main__":
    sys.exit(main())
