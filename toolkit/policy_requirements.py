"""Reads what a policy asks for besides signatures: `require` in it."""

from collections.abc import Collection
from dataclasses import dataclass, fields
from typing import Final, Literal, get_args

Builders = Literal["cached", "always"]
Rating = Literal["low", "medium", "high", "critical"]
Severity = Literal["any", Rating]
"""Severities of advisories, the least first."""


@dataclass(frozen=True, kw_only=True)
class Replay:
    """A signed statement that stretches of a run were trained again."""

    days: int  # how old it may be
    stretches: int  # how many were asked for at least


@dataclass(frozen=True, kw_only=True)
class Demands:
    second_builder: Builders | None = None  # for each wheel, or for those that hold results of caches or executors
    replay: Replay | None = None  # of each run
    no_advisories: Severity | None = None  # of this severity or above it


WORDS: Final = {"second-builder": get_args(Builders), "no-advisories": get_args(Severity)}
"""The demands that are one word, with the words."""

COUNTS: Final = {"replay": tuple(item.name for item in fields(Replay))}
"""The demands of several whole numbers above 0, with the name of each."""

REMOVED: Final = {"log", "witness"}
"""What policies of earlier versions named, and no version reads any more."""

_USE_REKOR: Final = "a private log is no longer kept: remove it from the policy, and see docs/sign.md on Rekor"


def require_present(names: Collection[object]) -> None:
    """Raise ValueError if a policy names what this version no longer has."""
    if gone := sorted(REMOVED & {name for name in names if isinstance(name, str)}):
        raise ValueError(f"`{gone[0]}`: {_USE_REKOR}")


def read(value: object) -> Demands:
    """Read `require` of a policy. Raises ValueError if it has another form."""
    if isinstance(value, dict):
        require_present(value.keys())
    if not isinstance(value, dict) or value.keys() - WORDS.keys() - COUNTS.keys():
        raise ValueError(f"`require` has {', '.join([*WORDS, *COUNTS])}, and nothing else: {str(value)[:120]}")
    for name, words in WORDS.items():
        if name in value and value[name] not in words:
            raise ValueError(f"`{name}` is one of {', '.join(words)}: {str(value[name])[:120]}")
    return Demands(
        second_builder=value.get("second-builder"),
        replay=Replay(**_read_counts("replay", value["replay"])) if "replay" in value else None,
        no_advisories=value.get("no-advisories"),
    )


def _read_counts(name: str, value: object) -> dict[str, int]:
    names = COUNTS[name]
    if not isinstance(value, dict) or value.keys() != set(names):
        raise ValueError(f"`{name}` has {', '.join(names)}, and nothing else: {str(value)[:120]}")
    for part, count in value.items():
        if type(count) is not int or count < 1:
            raise ValueError(f"wrong type: `{part}` of `{name}` is a whole number above 0: {str(count)[:120]}")
    return value
