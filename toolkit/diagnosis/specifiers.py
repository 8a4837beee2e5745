"""Compares versions with the specifiers of requirements, and tells those that are there from those that are wanted."""

import re
from typing import Final

_VERSION: Final = re.compile(r"\d+(?:\.\d+)+\w*")
_WISH: Final = re.compile(
    r"(?i:\b(?:requires?|needs?|wants?|expects?|at least|minimum|works with"
    r"|(?:upgrade|update|downgrade) to)\b(?:(?!\b(?:but|have|has|found|detected|installed)\b|[;,]).){0,40})$"
)
"""How a line goes on to a version that it wants."""
_OR_LATER: Final = re.compile(
    r"(?i:\s*(?:\+(?!\w)|(?:or|and) (?:higher|newer|later|above|greater|up)\b|is (?:required|needed)\b))"
)
"""How a line goes on behind one."""


def compare(found: str, spec: str) -> str:
    """Return ``old`` or ``new`` for a version that a specifier excludes; empty if it does not, or nobody can say."""
    # The library is slow to load, and commands that diagnose nothing import this module.
    from packaging.specifiers import InvalidSpecifier, SpecifierSet
    from packaging.version import InvalidVersion, Version

    try:
        version, wanted = Version(found), SpecifierSet(spec.rstrip(", "))
    except (InvalidVersion, InvalidSpecifier):
        return ""
    for each in wanted:
        if each.contains(version, prereleases=True):
            continue
        limit = Version(each.version.removesuffix(".*"))
        return "old" if version < limit or each.operator in {">", ">="} else "new"
    return ""


def fits(found: str, spec: str) -> bool:
    """Return whether a version is one that a specifier takes; not if nobody can say."""
    return bool(found) and compare(found, spec) == "" and compare(found, "<0") == "new"


def overlap(one: str, other: str) -> bool:
    """Return whether some version that either specifier names, or one beside it, is in both, or nobody can say."""
    from packaging.specifiers import InvalidSpecifier, SpecifierSet
    from packaging.version import Version

    try:
        both = SpecifierSet(one) & SpecifierSet(other)
    except InvalidSpecifier:
        return True
    limits = {Version(Version(each.version.removesuffix(".*")).base_version) for each in both}
    near = {Version(f"{limit}.{tail}") for limit in limits for tail in ("0", "1", "post1")}
    below = {Version(f"{limit.major}.{limit.minor - 1}") for limit in limits if limit.minor}
    below |= {Version(f"{limit.major - 1}.99") for limit in limits if limit.major and not limit.minor}
    return any(version in both for version in limits | near | below)


def read_minor(version: str) -> str:
    match = re.match(r"\d+\.\d+", version)
    return match[0] if match else ""


def step_below(version: str) -> str:
    major, _, minor = version.partition(".")
    return f"{major}.{int(minor) - 1}"


def skip_wish(line: str, version: str) -> str | None:
    """Return what follows in a line on a version that it only wants, which may not be there; None if it does not."""
    before, found, after = line.partition(version) if _VERSION.fullmatch(version) else ("", "", "")
    return after if found and (_WISH.search(before) or _OR_LATER.match(after)) else None
