"""What the Build Event Protocol says of a finished Bazel build: the verdict, the failures, the numbers.

One JSON object a line (``--build_event_json_file``); https://bazel.build/remote/bep. A build that was killed leaves a
file without its last events, or with half a line: what is there is read.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The facts of one build.

    Attributes:
        exit_code: of Bazel; None where the build did not come to its end.
        failures: label and mnemonic of each failed action, with its last words.
        executed: actions that were run or taken from a cache.
        runners: how many actions each strategy served, such as ``linux-sandbox`` or ``remote cache hit``.
        reused: actions that were not looked at again, because the output base had their results already.
        seconds: wall time.
    """

    exit_code: int | None = None
    failures: tuple[str, ...] = ()
    executed: int = 0
    runners: Mapping[str, int] = field(default_factory=dict)
    reused: int = 0
    seconds: float = 0

    @property
    def cached_by(self) -> dict[str, int]:
        """Actions whose result came from a disk or remote cache, by the kind of cache."""
        return {name: count for name, count in self.runners.items() if "cache hit" in name}

    @property
    def cached(self) -> int:
        """Actions whose result came from a disk or remote cache."""
        return sum(self.cached_by.values())

    @property
    def remote(self) -> int:
        """Actions that ran on a remote executor."""
        return self.runners.get("remote", 0)

    def record(self) -> dict[str, Any]:
        """What the manifest of a wheel keeps of a build."""
        return {**asdict(self), "cached": self.cached, "cached_by": self.cached_by, "remote": self.remote}


def read(lines: Iterable[str]) -> Outcome:
    """Read the events of one build; lines that are no JSON object are passed over."""
    exit_code: int | None = None
    failures: list[str] = []
    metrics: dict[str, Any] = {}
    for line in lines:
        event = _parse(line)
        identity = _table(event.get("id"))
        if "buildFinished" in identity:
            # Protobuf leaves a zero out of its JSON.
            exit_code = _number(_table(_table(event.get("finished")).get("exitCode")).get("code", 0))
        elif "actionCompleted" in identity:
            action = _table(event.get("action"))
            if action.get("success") is not True:
                failures.append(_describe(_table(identity["actionCompleted"]), action))
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


def describe(record: Mapping[str, Any]) -> str:
    """Say in one line how many actions ran, how many of them elsewhere, and which caches were trusted.

    Args:
        record: what :meth:`Outcome.record` gave; records of earlier versions lack some of it.
    """
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


def _describe(identity: Mapping[str, Any], action: Mapping[str, Any]) -> str:
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
