"""Versions that are asked for by name, as tables of tests have them."""

from typing import Any

from toolkit import versions
from toolkit.versions import BuildVersions, Set, Table
from toolkit.versions.set import NAMES


def choose(table: Table, **asked: Any) -> BuildVersions:
    """Return the set of a build for versions and other options of :func:`toolkit.versions.choose_versions`."""
    return versions.choose_versions(table, Set.of(asked), **{k: v for k, v in asked.items() if k not in NAMES})
