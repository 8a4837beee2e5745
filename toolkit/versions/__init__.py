"""The version table, its rules, and the set of versions that a command asks for."""

from toolkit.versions.rules import Spec, plan_set, propose, resolve
from toolkit.versions.sets import find_locked
from toolkit.versions.table import Locked, Table, load_table

__all__ = ["Locked", "Spec", "Table", "find_locked", "load_table", "plan_set", "propose", "resolve"]
