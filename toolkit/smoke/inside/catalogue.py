"""All checks, in the order in which they run: what later ones build on comes first."""

from collections.abc import Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Final

from . import build_info, compiler, determinism, device, libraries, numerics, processor, record, version, xla
from .check import Check

_IMPORT, *_VERSION = version.CHECKS
_INSTRUCTIONS, *_PROCESSOR = processor.CHECKS

CHECKS: Final[tuple[Check, ...]] = (
    # Before the import: a missing instruction set kills it without a word.
    _INSTRUCTIONS,
    _IMPORT,
    *_VERSION,
    *record.CHECKS,
    *build_info.CHECKS,
    *libraries.CHECKS,
    *compiler.CHECKS,
    *_PROCESSOR,
    *device.CHECKS,
    *numerics.CHECKS,
    *xla.CHECKS,
    # Last: it switches op determinism on for the rest of the process.
    *determinism.CHECKS,
)


def select(patterns: Sequence[str]) -> tuple[Check, ...]:
    """The checks whose ids match, with those that they need, in running order; all of them for no pattern.

    Raises:
        ValueError: a pattern such as ``xla.*`` or ``xla`` matches nothing; the message suggests.
    """
    if not patterns:
        return CHECKS
    wanted = _find(patterns)
    needed = wanted | {need for check in CHECKS if check.id in wanted for need in check.needs}
    return tuple(check for check in CHECKS if check.id in needed)


def leave_out(patterns: Sequence[str]) -> frozenset[str]:
    """The ids of the checks that somebody decided not to run; they stay in the report, as skipped.

    Raises:
        ValueError: a pattern matches nothing, or a check that others stand on: a report of skips alone proves nothing.
    """
    unwanted = _find(patterns)
    foundations = sorted(unwanted & {need for check in CHECKS for need in check.needs})
    if foundations:
        raise ValueError(f"{', '.join(foundations)} cannot be left out: other checks stand on it")
    return unwanted


def _find(patterns: Sequence[str]) -> frozenset[str]:
    found: set[str] = set()
    for pattern in patterns:
        matching = {check.id for check in CHECKS if _matches(check.id, pattern)}
        if not matching:
            near = get_close_matches(pattern, [check.id for check in CHECKS], 3, 0.4)
            raise ValueError(f"no check is called {pattern}" + (f"; did you mean {', '.join(near)}?" if near else ""))
        found |= matching
    return frozenset(found)


def _matches(check_id: str, pattern: str) -> bool:
    return fnmatchcase(check_id, pattern) or check_id.startswith(f"{pattern}.")
