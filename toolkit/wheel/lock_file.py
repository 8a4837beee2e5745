"""Checks and writes the lock file with the pins of a build, for `toolkit lock`."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from toolkit.base import files
from toolkit.base.console import Console
from toolkit.base.errors import CheckError
from toolkit.engine.uv import Uv, locate
from toolkit.versions import lock
from toolkit.versions.lock import Lock
from toolkit.versions.rules import plan_set
from toolkit.versions.sets import find_locked, lock_set
from toolkit.versions.settings import Settings
from toolkit.versions.table import load_table
from toolkit.wheel.build_inputs import choose_wheel_versions, collect_pins, find_images


@dataclass(frozen=True, kw_only=True)
class LockRequest:
    settings: Settings
    capabilities: Sequence[str] = ()
    apt_snapshot: str = ""
    day: str = ""  # the newest day of packages in a new run-time set; empty for the day of the table


def check(request: LockRequest, path: Path) -> Lock:
    """Return the lock in a file. Raises CheckError if there is none, or it differs from the present pins."""
    table = load_table()
    plan_set(table, request.settings.versions)
    spec = choose_wheel_versions(request.settings, request.capabilities)
    locked = lock.read(path)
    if locked is None:
        raise CheckError(f"there is no {path}", remedy="write it: toolkit lock")
    images = find_images(request.settings)
    lock.require_fit(locked, collect_pins(spec, table, images, locked, request.apt_snapshot))
    return locked


def write(request: LockRequest, path: Path, console: Console) -> Lock:
    """Write a lock and return it. The run-time set of its versions is made first if there is none."""
    table, settings = load_table(), request.settings
    runtime = plan_set(table, request.settings.versions)
    choose_wheel_versions(settings, request.capabilities)  # refuses what cannot work before a set is made for it
    locked = lock.read(path)  # fails before the work if the lock cannot be read
    if not find_locked(table, request.settings.versions):
        with console.timed("set", runtime.requirements):
            variables = {**Uv(ca_bundle=settings.ca_bundle).variables, "UV": str(locate())}
            lock_set(runtime, table, day=request.day or table.updated, variables=variables)
    spec, images = choose_wheel_versions(settings, request.capabilities), find_images(settings)
    # The earlier lock's day is kept, because only whoever wrote it knows why it was chosen.
    present = collect_pins(spec, table, images, locked, request.apt_snapshot)
    commit = present.pins["tensorflow-commit"] or lock.ask_commit(present.spec["tensorflow"])
    runtime_sets = lock.name_set(runtime.requirements)
    with files.changing(path):  # another command may have written a day or a commit meanwhile
        present = collect_pins(spec, table, images, lock.read(path), request.apt_snapshot)
        pins = {**present.pins, "tensorflow-commit": present.pins["tensorflow-commit"] or commit}
        sets = {name: value for name, value in runtime_sets.items() if name not in pins}
        present = replace(present, pins=pins, sets=sets)
        lock.write(path, present)
    return present
