"""The version table, its rules, and the set of versions that a command asks for."""

from toolkit.versions.rules import BuildVersions, choose_versions, plan_set, propose
from toolkit.versions.set import OPEN, Set
from toolkit.versions.sets import find_locked
from toolkit.versions.table import Locked, Table, load_table

__all__ = [
    "OPEN",
    "BuildVersions",
    "Locked",
    "Set",
    "Table",
    "choose_versions",
    "find_locked",
    "load_table",
    "plan_set",
    "propose",
]
