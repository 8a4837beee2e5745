import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from toolkit import digest, files
from toolkit.console import Console, StatusLine
from toolkit.engine import Engine, Environment, Job, Mount
from toolkit.errors import CheckError, UsageError
from toolkit.smoke.inside.check import Ask
from toolkit.smoke.report import Report, from_json, parse

INSIDE = Path(__file__).parent / "inside"
NO_PYTHON = 127
"""Exit code of an engine when a container's program does not exist."""

DEADLINE_SECONDS = 1800
"""For all checks together; each has its own, shorter deadline."""


def require_known(patterns: Sequence[str]) -> None:
    argv = [sys.executable, str(INSIDE), "--list", *_leave_out(patterns)]
    asked = subprocess.run(argv, capture_output=True, text=True, check=False)
    if asked.returncode:
        raise UsageError(
            asked.stderr.strip().rpartition("error: ")[2],
            remedy="a name as in the report, such as cpu.onednn, or the word before its dot",
        )


def plan(ask: Ask) -> Job:
    inside = Mount(source=INSIDE, target="/opt/toolkit/inside")
    argv: list[str | Mount] = [inside, "--json", "--device", ask.device]
    for option, value in (
        ("--expect-version", ask.version),
        ("--expect-cuda", ask.cuda),
        ("--expect-cudnn", ask.cudnn),
        ("--expect-capability", ask.capability),
        ("--expect-instructions", ",".join(ask.instructions)),
    ):
        argv += [option, value] if value else []
    argv += _leave_out(ask.skip)
    return Job(
        title="smoke",
        argv=tuple(argv),
        mounts=(inside,),
        gpu=ask.device == "gpu",
        deadline=DEADLINE_SECONDS,
    )


def run(engine: Engine, environment: Environment, ask: Ask, console: Console) -> Report:
    """Run the checks and keep their report. Raises CheckError: they did not finish. A failed check is only reported."""
    lines: list[str] = []
    status = StatusLine(console, "smoke")

    def collect(line: str) -> None:
        lines.append(line)
        status.show(_describe(line))

    try:
        code = engine.run(environment, plan(ask), collect)
    finally:
        status.clear()
    if code == NO_PYTHON:
        raise CheckError(
            f"there is no python in {environment.reference}",
            why="the checks are a Python program, and run by the Python whose TensorFlow they check",
            remedy="give an image that holds TensorFlow",
        )
    report = parse("\n".join(lines))
    files.write_json(_path(environment, ask), report.to_json())
    return report


def recall(environment: Environment, ask: Ask) -> Report | None:
    """Return the saved report for the same checks, environment and expectation, if its verdict is ``pass``."""
    value = files.read_json(_path(environment, ask))
    report = from_json(value) if value is not None else None
    return report if report and report.verdict == "pass" else None


def _leave_out(patterns: Sequence[str]) -> list[str]:
    # One word each, so that no pattern is read as an option.
    return [f"--skip={pattern}" for pattern in patterns]


def _path(environment: Environment, ask: Ask) -> Path:
    # With the checks that are left out, so that a report without them is never reused for a run with them.
    key = digest.digest_value([environment.digest, digest.digest_paths(INSIDE, [INSIDE]), asdict(ask)])
    return environment.folder / f"smoke-{digest.shorten(key)}.json"


def _describe(line: str) -> str:
    try:
        check = json.loads(line)["check"]
        return f"{check['result']} {check['id']}"
    except (ValueError, LookupError, TypeError):
        return ""
