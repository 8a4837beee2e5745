"""Versions that are asked for by name, as tables of tests have them."""

from typing import Any

from toolkit.versions.rules import BuildVersions, choose_versions
from toolkit.versions.set import NAMES, Set
from toolkit.versions.table import Table


def choose(table: Table, **asked: Any) -> BuildVersions:
    """Return the set of a build for versions and other options of :func:`toolkit.versions.rules.choose_versions`."""
    return choose_versions(table, Set.of(asked), **{k: v for k, v in asked.items() if k not in NAMES})
