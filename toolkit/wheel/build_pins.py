"""Collects the pins of a build, and writes or checks ``toolkit.lock.yaml`` for `toolkit lock`."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from toolkit import files, lock, versions
from toolkit.console import Console
from toolkit.errors import CheckError, UnsupportedError
from toolkit.lock import Lock
from toolkit.settings import Settings
from toolkit.versions import Spec, Table, find_locked, load_table, plan_set
from toolkit.versions.sets import lock_set
from toolkit.wheel.build_inputs import EngineImages, find_images


def resolve_spec(settings: Settings, capabilities: Sequence[str], distribution: str = "") -> Spec:
    """Return the set of versions for these settings.

    ``distribution``: of the base image, for an image whose name does not tell it.
    """
    table = load_table()
    named = table.find_base(settings.base_image)
    if distribution and distribution not in table.bases:
        raise UnsupportedError(
            f"no wheel is built on {settings.base_image}, whose distribution is {distribution}",
            why=f"the packages of its compilers are known for {', '.join(table.bases)}",
            remedy=f"--base-image {table.default.base_image}",
        )
    return versions.resolve(
        table,
        tensorflow=settings.tensorflow,
        python=settings.python,
        cuda=settings.cuda or None,
        cudnn=settings.cudnn or None,
        capabilities=capabilities,
        base=distribution or (named.codename if named else None),
        platform=settings.platform,
        glibc=settings.glibc,
    )


def collect_pins(spec: Spec, table: Table, images: EngineImages, locked: Lock | None, apt_snapshot: str = "") -> Lock:
    """Return the present pins.

    The lock adds the day of Debian's archive if none is given, and TensorFlow's commit if the table has none.
    """
    pins = locked.pins if locked else {}
    return lock.collect(
        spec,
        table,
        base_image=images.base,
        base_digest=images.digest,
        apt_snapshot=apt_snapshot or pins.get("apt-snapshot", ""),
        commit=pins.get("tensorflow-commit", ""),
    )


@dataclass(frozen=True, kw_only=True)
class LockRequest:
    settings: Settings
    capabilities: Sequence[str] = ()
    apt_snapshot: str = ""
    day: str = ""  # the newest day of packages in a new run-time set; empty for the day of the table

    @property
    def versions(self) -> tuple[str, str, str, str]:
        return self.settings.tensorflow, self.settings.python, self.settings.cuda, self.settings.cudnn


def check_lock(request: LockRequest, path: Path) -> Lock:
    """Return the lock in a file. Raises CheckError if there is none, or it differs from the present pins."""
    table = load_table()
    plan_set(table, *request.versions)
    spec = resolve_spec(request.settings, request.capabilities)
    locked = lock.read(path)
    if locked is None:
        raise CheckError(f"there is no {path}", remedy="write it: toolkit lock")
    images = find_images(request.settings)
    lock.require_fit(locked, collect_pins(spec, table, images, locked, request.apt_snapshot))
    return locked


def write_lock(request: LockRequest, path: Path, console: Console) -> Lock:
    """Write a lock and return it. The run-time set of its versions is made first if there is none."""
    table, settings = load_table(), request.settings
    runtime = plan_set(table, *request.versions)
    resolve_spec(settings, request.capabilities)  # refuses what cannot work before a set is made for it
    locked = lock.read(path)  # fails before the work if the lock cannot be read
    if not find_locked(table, *request.versions):
        with console.timed("set", runtime.requirements):
            lock_set(runtime, table, day=request.day or table.updated, ca_bundle=settings.ca_bundle)
    spec, images = resolve_spec(settings, request.capabilities), find_images(settings)
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
