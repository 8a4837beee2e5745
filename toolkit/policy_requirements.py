"""Reads what a policy asks for besides signatures: `require` in it."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, Literal, get_args

Builders = Literal["cached", "always"]
Rating = Literal["low", "medium", "high", "critical"]
Severity = Literal["any", Rating]
"""Severities of advisories, the least first."""


@dataclass(frozen=True, kw_only=True)
class Demands:
    second_builder: Builders | None = None  # for each wheel, or for those that hold results of caches or executors
    no_advisories: Severity | None = None  # of this severity or above it


WORDS: Final = {"second-builder": get_args(Builders), "no-advisories": get_args(Severity)}
"""The demands that are one word, with the words."""

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
    if not isinstance(value, dict) or value.keys() - WORDS.keys():
        raise ValueError(f"`require` has {', '.join(WORDS)}, and nothing else: {str(value)[:120]}")
    for name, words in WORDS.items():
        if name in value and value[name] not in words:
            raise ValueError(f"`{name}` is one of {', '.join(words)}: {str(value[name])[:120]}")
    return Demands(
        second_builder=value.get("second-builder"),
        no_advisories=value.get("no-advisories"),
    )
