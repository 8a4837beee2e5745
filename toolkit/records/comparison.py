"""Compares two runs of one configuration: weights, recorded numbers, and what each run was made with."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from toolkit.base.findings import Finding, State
from toolkit.records.origins import flatten
from train.record import reader
from train.record.reader import RunRecord

LEVELS: Final = {"weights": "R4", "image": "R3", "environment": "R1", "wheel": "R3", "packages": "R1", "lock": "R0"}
"""The level that each link proves. The digest of an environment covers its packages, not the bytes of its folder."""

ELSEWHERE: Final = "R5"
"""The level of weights that are the same on another processor or with another number of threads."""

WORDS: Final = {"ok": "same", "fail": "other", "absent": "unknown"}
"""State of a link in the output of `toolkit reproduce`, by the state of its finding."""


@dataclass(frozen=True, kw_only=True)
class Difference:
    step: int  # after how many steps it was written
    kind: str  # ``step`` or ``epoch``, as in metrics.jsonl, or ``result`` for the numbers at the end
    name: str  # of the number
    recorded: Any  # recorded, found: in the first run, and in the second
    found: Any

    def __str__(self) -> str:
        names = {"step": f"step {self.step}", "epoch": f"the epoch that ends with step {self.step}"}
        return f"{self.name} of {names.get(self.kind, 'the result')}: {self.found}, was {self.recorded}"


@dataclass(frozen=True, kw_only=True)
class Comparison:
    equal: bool  # whether the weights are equal to the bit
    recorded: str  # recorded, found: digest of the weights in the first run, and in the second
    found: str
    first: Difference | None  # the first recorded number that differs; None if all are equal
    compared: int  # how many records of steps and epochs were compared

    @property
    def holds(self) -> bool:
        """Whether weights and numbers are equal. If only the numbers differ, they were edited."""
        return self.equal and self.first is None


def compare(then: RunRecord, now: RunRecord) -> Comparison:
    recorded, repeated = then.value["weights_sha256"], now.value["weights_sha256"]
    before, after = _read(then.folder), _read(now.folder)
    differences = (_compare_lines(line, after.get(key)) for key, line in before.items())
    first = next(filter(None, differences), None)
    return Comparison(
        equal=recorded == repeated,
        recorded=recorded,
        found=repeated,
        first=first or _compare_values("result", int(then.result["steps"]), then.result, now.result),
        compared=len(before),
    )


def _read(folder: Path) -> dict[tuple[str, int], dict[str, Any]]:
    try:
        return {(line["kind"], int(line["step"])): line for line in reader.read_lines(folder)}
    except reader.BAD_METRICS:
        return {}


def _compare_lines(before: Mapping[str, Any], after: Mapping[str, Any] | None) -> Difference | None:
    kind, step = before["kind"], int(before["step"])
    if after is None:
        return Difference(step=step, kind=kind, name="record", recorded="there", found="missing")
    return _compare_values(kind, step, before, after)


def _compare_values(kind: str, step: int, before: Mapping[str, Any], after: Mapping[str, Any]) -> Difference | None:
    for name in before:
        if name not in reader.TIMES and before[name] != after.get(name):
            return Difference(step=step, kind=kind, name=name, recorded=before[name], found=after.get(name))
    return None


def describe(link: Finding) -> dict[str, Any]:
    return {"name": link.id, "level": link.facts["level"], "state": WORDS[link.state], "evidence": link.evidence}


def walk(then: RunRecord, now: RunRecord, comparison: Comparison) -> list[Finding]:
    evidence = comparison.found if comparison.equal else f"{comparison.found}, was {comparison.recorded}"
    elsewhere = reader.differ_in_machine(then.environment, now.environment)
    return [
        _compare("weights", comparison.equal, evidence, level=ELSEWHERE if elsewhere else ""),
        *_compare_code(then.parent, now.parent),
        *_compare_chains(then.parent, now.parent),
        _compare_packages(then.value.get("software", {}), now.value.get("software", {})),
    ]


def rank(links: list[Finding]) -> str:
    same = [link.facts["level"] for link in links if link.state == "ok" and link.facts["level"]]
    return max(same, default="below R0")


def _compare_code(then: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[Finding]:
    """Compare the training job's files. Images contain them, so two images are compared only by digest."""
    if then.get("kind") == now.get("kind") == "image":
        return
    before, after = then.get("code"), now.get("code")
    unknown = f"not known of the {'second' if before else 'first'} run"
    yield _compare_digests("training job", before, after, unknown)


def _compare_chains(then: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[Finding]:
    before = {link["kind"]: link for link in flatten(then)}
    after = {link["kind"]: link for link in flatten(now)}
    for kind in {**before, **after}:
        first, second = (side.get(kind, {}).get("digest") for side in (before, after))
        yield _compare_digests(kind, first, second, f"only {'then' if first else 'now'}: {first or second}")


def _compare_packages(then: Mapping[str, str], now: Mapping[str, str]) -> Finding:
    changed = [
        f"{name} {now.get(name, 'none')}, was {then.get(name, 'none')}"
        for name in sorted(then.keys() | now.keys())
        if then.get(name) != now.get(name)
    ]
    text = ", ".join(changed) or ", ".join(f"{name} {version}" for name, version in now.items())
    return _compare("packages", not changed, text)


def _compare_digests(name: str, before: str | None, after: str | None, unknown: str) -> Finding:
    if not (before and after):
        return _make(name, "absent", unknown)
    return _compare(name, before == after, after if before == after else f"{after}, was {before}")


def _compare(name: str, same: bool, evidence: str, *, level: str = "") -> Finding:
    return _make(name, "ok" if same else "fail", evidence, level=level)


def _make(name: str, state: State, evidence: str, *, level: str = "") -> Finding:
    level = level or LEVELS.get(name, "")
    return Finding(
        id=name,
        state=state,
        title=f"level {level}" if level else "",
        evidence=evidence,
        # Only different weights or numbers fail the command. Other links may explain the difference.
        advisory=name != "weights",
        facts={"level": level},
    )
