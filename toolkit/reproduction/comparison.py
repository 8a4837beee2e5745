"""Two runs of one configuration: whether their weights are equal, and else where they part."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolkit.audit import metrics
from toolkit.audit.record import RunRecord

TIMES = frozenset({"seconds", "images_per_second", "train_seconds", "first_step_seconds", "device_peak_bytes"})
"""What two equal runs need not have in common: times, and memory, which depends on what else is under way."""


@dataclass(frozen=True, kw_only=True)
class Difference:
    """The first number in which two runs differ.

    Attributes:
        step: after how many steps it was written.
        kind: ``step`` or ``epoch``, as in metrics.jsonl, or ``result`` for the numbers at the end.
        name: of the number.
        recorded, found: in the first run, and in the second.
    """

    step: int
    kind: str
    name: str
    recorded: Any
    found: Any

    def __str__(self) -> str:
        places = {"step": f"step {self.step}", "epoch": f"the epoch that ends with step {self.step}"}
        return f"{self.name} of {places.get(self.kind, 'the result')}: {self.found}, was {self.recorded}"


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

    @property
    def holds(self) -> bool:
        """Whether all is as it was recorded. Equal weights beside other numbers mean that the numbers were changed."""
        return self.equal and self.first is None


def compare(then: RunRecord, now: RunRecord) -> Comparison:
    """Compare weights, and what was written down of steps, epochs and the end."""
    recorded, found = then.value["weights_sha256"], now.value["weights_sha256"]
    before, after = _read(then.folder), _read(now.folder)
    differences = (_compare_lines(line, after.get(key)) for key, line in before.items())
    first = next(filter(None, differences), None)
    return Comparison(
        equal=recorded == found,
        recorded=recorded,
        found=found,
        first=first or _compare_values("result", int(then.result["steps"]), then.result, now.result),
        compared=len(before),
    )


def _read(folder: Path) -> dict[tuple[str, int], dict[str, Any]]:
    """What was written down, by kind and step; nothing where that is gone, for a manifest alone can be repeated.

    A first run may have fewer records than a second: it may have another ``--log-every``.
    """
    try:
        return {(line["kind"], int(line["step"])): line for line in metrics.read_lines(folder)}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _compare_lines(before: Mapping[str, Any], after: Mapping[str, Any] | None) -> Difference | None:
    kind, step = before["kind"], int(before["step"])
    if after is None:
        return Difference(step=step, kind=kind, name="record", recorded="there", found="missing")
    return _compare_values(kind, step, before, after)


def _compare_values(kind: str, step: int, before: Mapping[str, Any], after: Mapping[str, Any]) -> Difference | None:
    for name in before:
        if name not in TIMES and before[name] != after.get(name):
            return Difference(step=step, kind=kind, name=name, recorded=before[name], found=after.get(name))
    return None
