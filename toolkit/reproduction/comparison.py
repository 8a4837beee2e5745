"""Two runs of one configuration: whether their weights are equal, and else where they part."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolkit.audit import metrics
from toolkit.audit.record import RunRecord

TIMES = frozenset({"seconds", "images_per_second", "train_seconds", "first_step_seconds"})
"""What no two runs have in common."""


@dataclass(frozen=True, kw_only=True)
class Difference:
    """The first number in which two runs differ.

    Attributes:
        step: after how many steps it was written.
        kind: ``step`` or ``epoch``, or ``result`` for the numbers at the end.
        name: of the number.
        recorded, found: in the first run, and in the second.
    """

    step: int
    kind: str
    name: str
    recorded: Any
    found: Any

    def __str__(self) -> str:
        return f"{self.name} of {self.kind} {self.step}: {self.found}, was {self.recorded}"


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The outcome.

    Attributes:
        equal: the weights are, to the bit.
        recorded, found: digest of the weights in the first run, and in the second.
        first: where the numbers part; None where all that were written down are equal.
        compared: how many records of steps and epochs were compared.
    """

    equal: bool
    recorded: str
    found: str
    first: Difference | None
    compared: int


def compare(then: RunRecord, now: RunRecord) -> Comparison:
    """Compare weights, and what was written down of steps, epochs and the end."""
    recorded, found = then.value["weights_sha256"], now.value["weights_sha256"]
    before, after = _read(then.folder), _read(now.folder)
    first = next(filter(None, map(_compare_lines, before, after)), None)
    if first is None and before and len(before) != len(after):
        first = Difference(
            step=min(before[-1]["step"], after[-1]["step"] if after else 0),
            kind="result",
            name="number of records",
            recorded=len(before),
            found=len(after),
        )
    return Comparison(
        equal=recorded == found,
        recorded=recorded,
        found=found,
        first=first or _compare_values("result", int(then.result["steps"]), then.result, now.result),
        compared=min(len(before), len(after)),
    )


def _read(folder: Path) -> list[dict[str, Any]]:
    """What was written down; nothing where the run's folder is not whole, for its manifest alone can be repeated."""
    try:
        return metrics.read_lines(folder)
    except (OSError, ValueError):
        return []


def _compare_lines(before: Mapping[str, Any], after: Mapping[str, Any]) -> Difference | None:
    return _compare_values(before["kind"], int(before["step"]), before, after)


def _compare_values(kind: str, step: int, before: Mapping[str, Any], after: Mapping[str, Any]) -> Difference | None:
    for name in before:
        if name not in TIMES and before[name] != after.get(name):
            return Difference(step=step, kind=kind, name=name, recorded=before[name], found=after.get(name))
    return None
