"""Runs the checks in an environment and reads their report."""

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from toolkit import digest, files
from toolkit.console import Console, StatusLine
from toolkit.engine import Engine, Environment, Job, Mount
from toolkit.errors import CheckError, UsageError
from toolkit.smoke.report import Report, from_json, parse

INSIDE = Path(__file__).parent / "inside"
NO_PYTHON = 127
"""Exit code of an engine when a container's program does not exist."""

DEADLINE_SECONDS = 1800
"""For all checks together; each has its own, shorter deadline."""


@dataclass(frozen=True, kw_only=True)
class Expectation:
    """What the checks must find; an empty value is not checked."""

    version: str = ""  # of TensorFlow
    cuda: str = ""  # CUDA release as loaded
    cudnn: str = ""  # cuDNN release as loaded
    capability: str = ""  # compute capability, of the build and of the device
    device: str = "auto"  # ``auto``, ``cpu`` or ``gpu``; ``gpu`` makes a missing GPU a failure
    # checks to leave out, by id, noun or pattern. They are part of a saved report's key, so that a report without these
    # checks is never reused for a run with them
    skip: tuple[str, ...] = ()


def require_known(patterns: Sequence[str]) -> None:
    """Check that the program of the checks knows these names of checks. Raises UsageError: a name is unknown."""
    argv = [sys.executable, str(INSIDE), "--list", *_leave_out(patterns)]
    asked = subprocess.run(argv, capture_output=True, text=True, check=False)
    if asked.returncode:
        raise UsageError(
            asked.stderr.strip().rpartition("error: ")[2],
            remedy="a name as in the report, such as cpu.onednn, or the word before its dot",
        )


def plan(expected: Expectation) -> Job:
    """Return the job: the checks' folder mounted read-only, no network, and the expectation."""
    inside = Mount(source=INSIDE, target="/opt/toolkit/inside")
    argv: list[str | Mount] = [inside, "--json", "--device", expected.device]
    for option, value in (
        ("--expect-version", expected.version),
        ("--expect-cuda", expected.cuda),
        ("--expect-cudnn", expected.cudnn),
        ("--expect-capability", expected.capability),
    ):
        argv += [option, value] if value else []
    argv += _leave_out(expected.skip)
    return Job(
        title="smoke",
        argv=tuple(argv),
        mounts=(inside,),
        gpu=expected.device == "gpu",
        deadline=DEADLINE_SECONDS,
    )


def run(engine: Engine, environment: Environment, expected: Expectation, console: Console) -> Report:
    """Run the checks and keep their report beside the environment.

    Raises:
        CheckError: the checks did not finish. A failed check is only reported.
        EngineError: the engine stopped answering.
    """
    lines: list[str] = []
    status = StatusLine(console, "smoke")

    def collect(line: str) -> None:
        lines.append(line)
        status.show(_describe(line))

    try:
        code = engine.run(environment, plan(expected), collect)
    finally:
        status.clear()
    if code == NO_PYTHON:
        raise CheckError(
            f"there is no python in {environment.reference}",
            why="the checks are a Python program, and run by the Python whose TensorFlow they check",
            remedy="give an image that holds TensorFlow",
        )
    report = parse("\n".join(lines))
    files.write_json(_path(environment, expected), report.to_json())
    return report


def recall(environment: Environment, expected: Expectation) -> Report | None:
    """Return the saved report for the same checks, environment and expectation, if its verdict is ``pass``."""
    value = files.read_json(_path(environment, expected))
    report = from_json(value) if value is not None else None
    return report if report and report.verdict == "pass" else None


def _leave_out(patterns: Sequence[str]) -> list[str]:
    # One word each, so that no pattern is read as an option.
    return [f"--skip={pattern}" for pattern in patterns]


def _path(environment: Environment, expected: Expectation) -> Path:
    key = digest.digest_value([environment.digest, digest.digest_paths(INSIDE, [INSIDE]), asdict(expected)])
    return environment.folder / f"smoke-{digest.shorten(key)}.json"


def _describe(line: str) -> str:
    try:
        check = json.loads(line)["check"]
        return f"{check['result']} {check['id']}"
    except (ValueError, LookupError, TypeError):
        return ""
