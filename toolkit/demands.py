"""Reads what a policy asks for besides signatures: `require` in it."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal, get_args

Builders = Literal["cached", "always"]
Rating = Literal["low", "medium", "high", "critical"]
Severity = Literal["any", Rating]
"""Severities of advisories, the least first."""

_KINDS: Final = {str: "a text", int: "a whole number above 0"}


@dataclass(frozen=True, kw_only=True)
class Replay:
    """A signed statement that stretches of a run were trained again."""

    days: int  # how old it may be
    stretches: int  # how many were asked for at least


@dataclass(frozen=True, kw_only=True)
class Logged:
    """The log in which all that is signed must be."""

    origin: str
    folder: Path
    witness: Path | None = None  # the head that a witness publishes


@dataclass(frozen=True, kw_only=True)
class Demands:
    second_builder: Builders | None = None  # for each wheel, or for those that hold results of caches or executors
    replay: Replay | None = None  # of each run
    no_advisories: Severity | None = None  # of this severity or above it
    log: Logged | None = None

    def describe(self) -> dict[str, Any]:
        """Return them for a record: without paths, which are of this machine alone."""
        return {**asdict(self), "log": self.log.origin if self.log else None}

    def waive(self, *, stretches: int, builder: bool) -> "Demands":
        """Return them without what the command itself is about to make: a second build, or so many stretches again."""
        asked = self.replay if self.replay and stretches < self.replay.stretches else None
        return replace(self, replay=asked, second_builder=None if builder else self.second_builder)


NAMES: Final = {"second-builder": get_args(Builders), "no-advisories": get_args(Severity)}
"""The demands that are one word, with the words."""

PARTS: Final[Mapping[str, Mapping[str, type]]] = {
    "replay": {"days": int, "stretches": int},
    "log": {"origin": str, "folder": str, "witness": str},
}
"""The demands of several values, with the type of each."""

OPTIONAL: Final = {"witness"}


def read(value: object, base: Path) -> Demands:
    """Read `require` of a policy. ``base``: the folder that paths in it begin at. Raises ValueError: another value."""
    if not isinstance(value, dict) or value.keys() - NAMES.keys() - PARTS.keys():
        raise ValueError(f"`require` has {', '.join([*NAMES, *PARTS])}, and nothing else: {str(value)[:120]}")
    for name, words in NAMES.items():
        if name in value and value[name] not in words:
            raise ValueError(f"`{name}` is one of {', '.join(words)}: {str(value[name])[:120]}")
    replay, log = (_read_parts(name, value[name]) if name in value else None for name in PARTS)
    if log:
        log |= {name: base / log[name] for name in ("folder", "witness") if name in log}
    return Demands(
        second_builder=value.get("second-builder"),
        replay=Replay(**replay) if replay else None,
        no_advisories=value.get("no-advisories"),
        log=Logged(**log) if log else None,
    )


def _read_parts(name: str, value: object) -> dict[str, Any]:
    parts = PARTS[name]
    if not isinstance(value, dict) or value.keys() - parts.keys() or parts.keys() - OPTIONAL - value.keys():
        raise ValueError(f"`{name}` has {', '.join(parts)}, and nothing else: {str(value)[:120]}")
    for each, found in value.items():
        if type(found) is not parts[each] or not found or (isinstance(found, int) and found < 1):
            raise ValueError(f"wrong type: `{each}` of `{name}` is {_KINDS[parts[each]]}: {str(found)[:120]}")
    return value
