"""Runs Bazel: everything that it says is kept, what a user needs now is shown."""

import contextlib
import hashlib
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from wheelbuild.watchdog import Watchdog

SHOWN = re.compile(
    r"\[[\d,]+ / [\d,]+\]|ERROR:|FAILED:|FATAL:|WARNING: (?:Remote|Reading|Writing)|Analyzing:|INFO: (?:Elapsed|\d)"
)
"""Lines for the console: progress, failures, trouble with a cache, the summary."""

KILLED = re.compile(r"\(Killed\)|\(Exit 137\)|: Killed\b|[Ss]ignal 9\b|[Ss]erver terminated abruptly")
"""How Bazel words it when the kernel kills a compiler, or Bazel itself."""

FULL = re.compile(r"[Nn]o space left on device|[Dd]isk quota exceeded")
"""How the kernel words it when a disk is full, whichever program passes it on."""

FULL_HERE = re.compile(rf"IOException: (?:{FULL.pattern})|\((?:{FULL.pattern})\)")
"""How Bazel itself words it, which writes on this machine."""

SILENT = re.compile(r"^ERROR: .* failed: error executing .*\n(?:Target |ERROR: |INFO: |\[[\d,]+ / )", re.MULTILINE)
"""A failed action of which no word is left, as on an executor whose disk had no room for them."""

REFUSED = "Failed to query remote execution capabilities"
"""How Bazel words it when the remote executor does not answer its first question, or not well."""

_PROCESSES = re.compile(r"INFO: \d+ process(?:es)?: (.+)\.$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Ended:
    code: int  # Bazel's exit code (https://bazel.build/run/scripts#exit-codes)
    full: str = ""  # the first line about a full disk; it may be in no log, which is on that disk too
    trouble: str = ""  # why the watchdog ended it


@dataclass(frozen=True, kw_only=True)
class Program:
    version: str  # what it says of itself, such as ``6.5.0``
    path: str  # the file that is started, with all links resolved
    sha256: str  # hex digest of that file


@dataclass(frozen=True, kw_only=True)
class ActionCounts:
    remote: int = 0  # actions that ran on the remote executor
    cached: int = 0  # actions whose result came from a cache
    here: int = 0  # actions that ran on this machine


def run(
    argv: Sequence[str],
    *,
    environment: Mapping[str, str],
    folder: Path,
    log: Path,
    redact: Callable[[str], str] = str,
    watchdog: Watchdog | None = None,
) -> Ended:
    """Run Bazel with these variables and no others, and mask secrets in each line before it is logged or shown."""
    process = subprocess.Popen(
        argv,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    full = ""
    # Without a buffer: what a full disk refuses would be tried again at the end, and fail there.
    watching = watchdog.watching(process) if watchdog else contextlib.nullcontext()
    with log.open("wb", buffering=0) as kept, watching:
        for said in process.stdout or ():
            if watchdog:
                watchdog.hear(said)
            line = redact(said)
            try:
                kept.write(line.encode())
            except OSError as error:
                # Go on reading: Bazel stops when its output pipe is full.
                full = full or f"{log}: {error.strerror}"
            if FULL.search(line):
                full = full or line.strip()
            if SHOWN.match(line):
                sys.stdout.write(line)
                sys.stdout.flush()
        code = process.wait()
    return Ended(code=code, full=full, trouble=watchdog.trouble if watchdog and code else "")


def identify(environment: Mapping[str, str], folder: Path) -> Program:
    """Find out which Bazel runs in a tree: a launcher may choose another version there than elsewhere."""
    path = Path(shutil.which("bazel", path=environment["PATH"]) or "bazel").resolve(strict=True)
    said = subprocess.run(
        [path, "--version"], cwd=folder, env=environment, capture_output=True, text=True, check=True
    ).stdout
    with path.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    return Program(version=said.strip().removeprefix("bazel "), path=str(path), sha256=digest)


def count_processes(log: str) -> dict[str, int]:
    """Return actions by where they ran, from Bazel's last line: a broken remote cache is only a warning to it."""
    found = _PROCESSES.findall(log)
    if not found:
        return {}
    pairs = (part.strip().split(" ", 1) for part in found[-1].split(","))
    return {where: int(count) for count, where in pairs}


def count_actions(processes: Mapping[str, int]) -> ActionCounts:
    """Sum up what :func:`count_processes` found; ``internal`` actions do no work and count nowhere."""
    cached = sum(count for where, count in processes.items() if "cache hit" in where)
    remote = processes.get("remote", 0)
    others = sum(processes.values()) - cached - remote - processes.get("internal", 0)
    return ActionCounts(remote=remote, cached=cached, here=others)
