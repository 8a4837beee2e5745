"""Weighs the events of Kubernetes: one that another of the same reason followed is past."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

_AGE: Final = r"(?P<age>(?:\d+[dhms])+)(?: \(x\d+ over \w+\))?"
_EVENTS: Final = (
    # of `kubectl describe`, where the object is that of the page, and of `kubectl get events`
    re.compile(rf"(?:Normal|Warning)\s+(?P<reason>\w+)\s+{_AGE}\s+(?P<object>[\w-]+)"),
    re.compile(rf"(?:[\w-]+\s+)?{_AGE}\s+(?:Normal|Warning)\s+(?P<reason>\w+)\s+(?P<object>[\w./-]+)"),
)
_SECONDS: Final = {"d": 86400, "h": 3600, "m": 60, "s": 1}


@dataclass(frozen=True)
class _Event:
    kind: tuple[str, str]  # the reason, and the object or what reports it
    age: int  # seconds since it was seen last


def find_past(lines: Mapping[str, Sequence[str]]) -> set[str]:
    """Return the names of which all lines are events that one of another name followed for the same reason."""
    events = {name: [_read(line) for line in texts] for name, texts in lines.items()}
    return {
        name
        for name, mine in events.items()
        if mine and all(_is_past(event, (each for key, each in events.items() if key != name)) for event in mine)
    }


def _is_past(event: _Event | None, others: Iterable[Sequence[_Event | None]]) -> bool:
    if event is None:
        return False
    newer = [each for them in others for each in them if each is not None and each.age < event.age]
    return any(each.kind == event.kind for each in newer)


def _read(line: str) -> _Event | None:
    found = next((match for pattern in _EVENTS if (match := pattern.match(line))), None)
    if found is None:
        return None
    age = sum(int(number) * _SECONDS[unit] for number, unit in re.findall(r"(\d+)([dhms])", found["age"]))
    return _Event((found["reason"], found["object"]), age)
