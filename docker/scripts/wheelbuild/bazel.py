"""Bazel as a process: everything that it says is kept, what a user needs now is shown."""

import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

SHOWN = re.compile(
    r"\[[\d,]+ / [\d,]+\]|ERROR:|FAILED:|FATAL:|WARNING: (?:Remote|Reading|Writing)|Analyzing:|INFO: (?:Elapsed|\d)"
)
"""Lines for the console: progress, failures, trouble with a cache, the summary."""

KILLED = re.compile(r"\(Killed\)|\(Exit 137\)|: Killed\b|[Ss]ignal 9\b|[Ss]erver terminated abruptly")
"""How Bazel words it when the kernel kills a compiler, or Bazel itself."""

_PROCESSES = re.compile(r"INFO: \d+ process(?:es)?: (.+)\.$", re.MULTILINE)


def run(argv: Sequence[str], *, environment: Mapping[str, str], folder: Path, log: Path) -> int:
    """Run Bazel, with its output in ``log`` and the lines that matter on the console.

    Returns:
        Bazel's exit code (https://bazel.build/run/scripts#exit-codes).
    """
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
    with log.open("w") as kept:
        for line in process.stdout or ():
            kept.write(line)
            kept.flush()
            if SHOWN.match(line):
                sys.stdout.write(line)
                sys.stdout.flush()
    return process.wait()


def read_version(environment: Mapping[str, str]) -> str:
    """What ``bazel --version`` says, such as ``6.5.0``."""
    said = subprocess.run(["bazel", "--version"], env=environment, capture_output=True, text=True, check=True).stdout
    return said.strip().removeprefix("bazel ")


def count_processes(log: str) -> dict[str, int]:
    """Actions by where they ran, from Bazel's last line: ``{"disk cache hit": 21, "processwrapper-sandbox": 2}``.

    A broken remote cache is only a warning to Bazel; these numbers are how it is noticed.
    """
    found = _PROCESSES.findall(log)
    if not found:
        return {}
    pairs = (part.strip().split(" ", 1) for part in found[-1].split(","))
    return {where: int(count) for count, where in pairs}
