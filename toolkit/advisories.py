"""Reads the security advisories that a package index lists for releases, and compares them with the version table."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from packaging.version import Version

from toolkit import inquiry
from toolkit.versions import numbers
from toolkit.versions.patch import Change
from toolkit.versions.table import Table

SOURCE = "index-advisories"
LISTED = "security advisories that the package index lists for releases of tensorflow"
LENGTH = 300
"""Characters of a description that are kept."""


@dataclass(frozen=True, kw_only=True)
class Vulnerability:
    id: str
    what: str
    fixed: str  # the first later version without it; empty if there is none


def read(releases: Mapping[str, str]) -> dict[str, dict[str, Vulnerability]]:
    """Return what the index lists for versions, by id and version. ``releases``: the release of each that is asked for.

    Raises UnreadableError if the index does not answer, or lists no advisories.
    """
    place, advisories = find_service("tensorflow"), dict[str, dict[str, Vulnerability]]()
    for version, release in releases.items():
        for item in read_release(f"{place}/pypi/tensorflow/{release}/json"):
            advisories.setdefault(item.id, {})[version] = item
    return advisories


def compare(table: Table, listed: Mapping[str, Mapping[str, Vulnerability]]) -> Iterator[Change]:
    """Yield what the table lacks. What the index does not list stays: other sources have it."""
    for name, rows in listed.items():
        had = table.advisories.get(name)
        affected = numbers.sort({*rows, *(had.affected if had else ())})
        if had is None:
            newest = rows[numbers.sort(rows)[-1]]
            fields = {"affected": affected, "fixed": newest.fixed, "what": newest.what}
            yield Change(("advisories", name), {**fields, "sources": [SOURCE]})
        elif affected != list(had.affected):
            yield Change(("advisories", name, "affected"), affected)
            yield Change(("advisories", name, "sources"), list(dict.fromkeys([*had.sources, SOURCE])))


def find_service(name: str) -> str:
    """Return the address under which pip's index is, without `/simple`, as pip says it."""
    output = inquiry.run_pip("index", "versions", "-vv", name)
    service = re.search(rf"^\s*\* (https?://\S+)/simple/{name}/?$", output, re.MULTILINE)
    if not service:
        raise inquiry.UnreadableError("pip names no index on the web")
    return service[1]


def read_release(address: str) -> list[Vulnerability]:
    """Return what an index lists for a release, in the form of PyPI's JSON API."""
    answer = inquiry.download(address)
    with inquiry.parsing_answer(answer):
        value = json.loads(answer)
        if "vulnerabilities" not in value:
            raise inquiry.UnreadableError("the index lists none: its answers have no `vulnerabilities`")
        release = Version(value["info"]["version"])
        return [_describe(item, release) for item in value["vulnerabilities"] if not item.get("withdrawn")]


def _describe(item: Mapping[str, Any], release: Version) -> Vulnerability:
    names = [*item["aliases"], item["id"]]
    name = next((alias for alias in names if alias.startswith("CVE-")), item["id"])
    if not re.fullmatch(r"[A-Z]+-[\w-]{1,40}", name):
        raise ValueError(name)
    later = [version for version in map(Version, item["fixed_in"]) if version > release and not version.is_prerelease]
    summary = " ".join(str(item.get("summary") or item["details"]).split())
    return Vulnerability(id=name, what=summary[:LENGTH], fixed=str(min(later)) if later else "")
