"""Reads the output of a build: its progress while it runs, its events at the end, and the cause of a failure.

Events follow Bazel's Build Event Protocol, one JSON object a line (https://bazel.build/remote/bep). It has no running
total of actions, so progress is read from the lines that Bazel prints. docker/README.md lists the exit codes.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from toolkit import diagnosis
from toolkit.base import processes
from toolkit.base.errors import BuildError, CheckError, EngineError, IntegrityError, PreflightError, ToolkitError
from train.system.progress import Work

_COUNT = re.compile(r"\[([0-9][0-9,]{0,11}) / ([0-9][0-9,]{0,11})\]\s*(.*)")
_KERNELS = re.compile(r"\bkernels: (\d{1,9}) of (\d{1,9}) ([^\s:]+):")
"""A line of docker/scripts/kernels/tree.py."""
_NOISE = re.compile(r"\s*(?:\.\.\. \(\d+ actions.*|;\s*\d+s\s+\S+.*)$")
_CODE = re.compile(r"exit code: (\d+)")
_STAGE = re.compile(r"\[([a-z][a-z-]*)(?: \d+/\d+)?\]")
_CAUSE = re.compile(
    r"\berror:|^\s*(?:ERROR|FATAL|fatal|proof|apply-patches|install-packages)\b.*:|^\s*E: |[Hh]ash mismatch|"
    r"was killed for memory|"
    r"^\s*wheel: (?:instructions|the remote executor|no action ran|the rc file|the disk)|" + processes.DISK_FULL.pattern
)
# Lines that Bazel and BuildKit print for every failure. They name no cause.
_EMPTY = re.compile(r"did NOT complete successfully|failed to solve: process|the target bazel-log|build interrupted")
_KEY = re.compile(r"(?:ERROR|FATAL):")
"""Start of a Bazel error. The cause is often in the lines after it."""
_MESSAGE = re.compile(
    r"(?:INFO|WARNING|DEBUG|FAILED|Loading|Analyzing|Fetching|Target //\S+|wheel|proof): ?|\[[\d,]+ / [\d,]+\]|"
    r'process "|Use --\w+|\[[a-z-]+ \d+/\d+\]'
)
"""Start of any other message. It ends the error before it."""
_DETAIL = re.compile(
    r'Traceback \(most recent|File "|# (?:Configuration|Execution platform):|.*\\$|[~^ ]+$|\(cd |/?[\w.+-]+/\S+ -.*\)$'
)
"""Stack frames and parts of the failed command. They are not reported as a cause."""
_REASON = re.compile(r"\b[Ee]rror(?: in \w+)?: |Exception: ")
"""A long line that continues an error, and is no command."""
_CAUSES = 8
_CONTINUED = 6
_WIDTH = 300

ERRORS: Mapping[str, type[ToolkitError]] = {
    "build": BuildError,
    "check": CheckError,
    "engine": EngineError,
    "integrity": IntegrityError,
    "preflight": PreflightError,
}
"""The error by which a build ends, as the table of failures names it."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    exit_code: int | None = None  # of Bazel; None if the build did not end
    failures: tuple[str, ...] = ()  # label and mnemonic of each failed action, with its message
    executed: int = 0  # actions that were run or taken from a cache
    # number of actions by strategy, such as ``linux-sandbox`` or ``remote cache hit``
    runners: Mapping[str, int] = field(default_factory=dict)
    reused: int = 0  # actions that did not run because the output base had their results
    seconds: float = 0  # wall time

    @property
    def cached_by(self) -> dict[str, int]:
        return {name: count for name, count in self.runners.items() if "cache hit" in name}

    @property
    def cached(self) -> int:
        return sum(self.cached_by.values())

    @property
    def remote(self) -> int:
        return self.runners.get("remote", 0)

    def record(self) -> dict[str, Any]:
        return {**asdict(self), "cached": self.cached, "cached_by": self.cached_by, "remote": self.remote}


def read_events(lines: Iterable[str]) -> Outcome:
    exit_code: int | None = None
    failures: list[str] = []
    metrics: dict[str, Any] = {}
    for line in lines:
        event = _parse(line)
        identity = _table(event.get("id"))
        if "buildFinished" in identity:
            # Protobuf omits zeros from its JSON.
            exit_code = _number(_table(_table(event.get("finished")).get("exitCode")).get("code", 0))
        elif "actionCompleted" in identity:
            action = _table(event.get("action"))
            if action.get("success") is not True:
                failures.append(_describe_failure(_table(identity["actionCompleted"]), action))
        elif "buildMetrics" in identity:
            metrics = _table(event.get("buildMetrics"))
    summary, timing = _table(metrics.get("actionSummary")), _table(metrics.get("timingMetrics"))
    runners = summary.get("runnerCount")
    return Outcome(
        exit_code=exit_code,
        failures=tuple(failures),
        executed=_number(summary.get("actionsExecuted", 0)),
        runners={
            str(_table(item).get("name")): _number(_table(item).get("count", 0))
            for item in (runners if isinstance(runners, list) else [])
        },
        reused=_number(_table(summary.get("actionCacheStatistics")).get("hits", 0)),
        seconds=_number(timing.get("wallTimeInMs", 0)) / 1000,
    )


def describe_outcome(record: Mapping[str, Any]) -> str:
    """Return in one line how many actions ran, how many came from which cache, and how many ran remotely."""
    kinds = record.get("cached_by") or {name: n for name, n in record["runners"].items() if "cache hit" in name}
    parts = [f"{record['executed']} actions"]
    if kinds:
        parts.append(f"{sum(kinds.values())} of them from a cache ({_list_counts(kinds)})")
    else:
        parts.append("none of them from a cache")
    if remote := record.get("remote", 0):
        parts.append(f"{remote} on the remote executor")
    if reused := record.get("reused", 0):
        parts.append(f"{reused} more unchanged since an earlier build")
    return ", ".join(parts)


def _list_counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}{'s' if count != 1 else ''}" for name, count in sorted(counts.items()))


def _describe_failure(identity: Mapping[str, Any], action: Mapping[str, Any]) -> str:
    detail = _table(_table(action.get("failureDetail"))).get("message", "")
    return f"{identity.get('label', '?')} {action.get('type', '?')}: {detail or action.get('exitCode', 'failed')}"


def _parse(line: str) -> dict[str, Any]:
    try:
        return _table(json.loads(line))
    except (ValueError, RecursionError):
        return {}


def _table(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _number(value: object) -> int:
    # Protobuf writes 64-bit numbers as text in JSON.
    try:
        return int(value)  # type: ignore[call-overload, no-any-return]
    except (TypeError, ValueError, OverflowError):
        return 0


def read_work(line: str) -> Work | None:
    """Return the progress that a line of the output shows, or None.

    It is Bazel's count of actions, or that of the kernels that are proven before. Bazel finds actions while it builds,
    so the total grows. Links, and results from a cache, take no time.
    """
    if match := _COUNT.search(line):
        done, total = (int(match[index].replace(",", "")) for index in (1, 2))
        return Work(_NOISE.sub("", match[3]).strip(), done, total, "actions", uneven=True)
    if match := _KERNELS.search(line):
        return Work(match[3], int(match[1]), int(match[2]), "kernels")
    return None


def explain(error: BuildError, logs: Iterable[Path]) -> ToolkitError:
    """Return a build's failure as an error of its kind.

    ``logs``: files to read, the most useful first. Missing ones are skipped.
    """
    present = [path for path in logs if path.is_file()]
    log_text = "\n".join([*(path.read_text(errors="replace") for path in present), error.why])
    code = _CODE.search(error.why)
    cause = diagnosis.explain(log_text) or (diagnosis.explain_exit_code(int(code[1])) if code else None)
    likely = cause or diagnosis.explain(log_text, certain=False)
    shown = [_cut(line.text) for line in likely.match.lines] if likely else []
    lines = find_causes(log_text)
    why = "\n       ".join([*(line for line in shown if line not in lines), *lines]) or error.why
    if cause:
        summary = diagnosis.to_clause(cause.cause)
        return ERRORS[cause.row.error](f"the build failed: {summary}", why=why, remedy=cause.advice)
    stage = _STAGE.search(error.what)
    summary = f"the build failed in the stage {stage[1]}" if stage else error.what
    remedy = f"the whole log is {present[0]}" if present else error.remedy
    advice = f"{remedy}\nperhaps: {likely.cause} {likely.advice}" if likely else remedy
    return BuildError(summary, why=why, remedy=advice)


def find_causes(log_text: str) -> list[str]:
    """Return the lines of a log that name a cause, each once and in order, without stack frames and commands."""
    reported: dict[str, str] = {}
    causes = room = 0
    framed = False
    for raw in log_text.splitlines():
        line = raw.strip()
        # The line below a stack frame is its source code.
        detail, framed = framed or bool(_DETAIL.match(line)), line.startswith('File "')
        if _CAUSE.search(line):
            room = _CONTINUED if _KEY.match(line) else 0
            if _EMPTY.search(line):
                room = 0
            elif line not in reported:
                causes += 1
                if causes > _CAUSES:
                    break
                reported[line] = _cut(line)
        elif _MESSAGE.match(line):
            room = 0
        elif room and line and line not in reported and not detail and (len(line) <= _WIDTH or _REASON.search(line)):
            reported[line] = f"  {_cut(line)}"
            room -= 1
    return list(reported.values())


def _cut(line: str) -> str:
    # Bazel names the action first, and the cause last.
    half = _WIDTH // 2
    return line if len(line) <= _WIDTH else f"{line[:half]}…{line[-half:]}"
