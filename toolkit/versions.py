"""Versions as people type them and as they compare: numbers between dots."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from toolkit.errors import UsageError

# Bounded on purpose: no version has more, and unbounded digits are a way to burn time.
_VERSION = re.compile(r"[0-9]{1,6}(\.[0-9]{1,6}){0,3}")


def parse(text: str, name: str = "version") -> tuple[int, ...]:
    """The numbers of a version.

    Args:
        text: such as ``12.6.1``.
        name: what the version is of, for the message.

    Raises:
        UsageError: it is not numbers between dots.
    """
    if not _VERSION.fullmatch(text):
        shown = text if len(text) <= 40 else text[:40] + "…"
        raise UsageError(f"not a version of {name}: {shown!r}", remedy="write numbers between dots, such as 12.6.1")
    return tuple(int(part) for part in text.split("."))


def sort(texts: Iterable[str]) -> list[str]:
    """Versions, oldest first."""
    return sorted(texts, key=parse)


def find_nearest(text: str, known: Iterable[str], *, prefer: str = "") -> str:
    """The known version nearest to one asked for, by the first two numbers.

    Of equals the preferred one is taken, then the nearest by all numbers that were given, then the newest.
    """
    asked, partial = _place(text), text.count(".") < 2

    def distance(candidate: str) -> tuple[int, bool, int, int]:
        place = _place(candidate)
        return (
            abs(place // _STEP**2 - asked // _STEP**2),
            candidate != prefer,
            0 if partial else abs(place - asked),
            -place,
        )

    return min(known, key=distance)


_STEP = 10**6


def _place(text: str) -> int:
    """A version as one number, so that 13.0 is nearer to 12.8 than to 12.1."""
    numbers = parse(text)
    return sum(number * _STEP ** (3 - index) for index, number in enumerate(numbers))


@dataclass(frozen=True, kw_only=True)
class Range:
    """Versions from ``since`` on and below ``before``; an empty bound is no bound."""

    since: str = ""
    before: str = ""

    def __contains__(self, text: str) -> bool:
        version = parse(text)
        return (not self.since or parse(self.since) <= version) and (not self.before or version < parse(self.before))
