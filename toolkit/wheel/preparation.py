"""From what was asked to a plan: refused at once where it cannot work, pinned where it can be."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from toolkit import lock
from toolkit.errors import EngineError, PreflightError
from toolkit.lock import Lock
from toolkit.settings import Settings
from toolkit.versions import Spec, Table, load_table, resolve
from toolkit.wheel import origin
from toolkit.wheel.plan import Means, WheelPlan, plan

if TYPE_CHECKING:
    from docker import DockerClient


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What ``toolkit build-wheel`` was asked for, beyond the settings.

    Attributes:
        capabilities: as the user wrote them; none for the default.
        apt_snapshot: day of Debian's snapshot archive, or empty.
        source, bazel: what replaces the pinned ones, or empty.
        bazel_arguments: flags for Bazel.
        means: how to build.
    """

    capabilities: Sequence[str] = ()
    apt_snapshot: str = ""
    source: str = ""
    bazel: str = ""
    bazel_arguments: Sequence[str] = ()
    means: Means


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A build that can start.

    Attributes:
        spec: the versions, with the warnings that they deserve.
        plan: what will be run.
        matrix: the version table.
        engine: name and version of the container engine; empty where none answered.
    """

    spec: Spec
    plan: WheelPlan
    matrix: Table
    engine: str


@dataclass(frozen=True, kw_only=True)
class Ground:
    """The images that a build stands on, as the engine knows them.

    Attributes:
        image, digest: reference and content digest of the base; the latter is empty where no engine answered.
        bazel_digest: content digest of Bazel's image, where it is one and is here.
        pinned: the reference with its digest, where a registry gave it one.
        engine: name and version of the engine, or empty.
    """

    image: str
    digest: str = ""
    pinned: str = ""
    bazel_digest: str = ""
    engine: str = ""


def resolve_spec(settings: Settings, capabilities: Sequence[str]) -> Spec:
    """The versions, from settings and the table's defaults. Raises as :func:`toolkit.versions.resolve`."""
    return resolve(
        load_table(),
        tensorflow=settings.tensorflow,
        python=settings.python,
        cuda=settings.cuda or None,
        cudnn=settings.cudnn or None,
        capabilities=capabilities,
    )


def find_ground(settings: Settings, *, required: bool, bazel: str = "") -> Ground:
    """Ask the engine for the images.

    Args:
        settings: name the base.
        required: whether there must be an engine with a base image; otherwise the digests stay empty.
        bazel: where Bazel comes from, or empty.

    Raises:
        EngineError: no engine answers, and one is required.
        PreflightError: the engine has no base image and can pull none.
    """
    from toolkit.engine.client import connect, select_base

    try:
        client = connect()
    except EngineError:
        if required:
            raise
        return Ground(image=settings.base_image)
    known = {"bazel_digest": _find_digest(client, bazel), "engine": f"docker {client.version()['Version']}"}
    try:
        found = select_base(client, settings)
    except PreflightError:
        if required:
            raise
        return Ground(image=settings.base_image, **known)
    return Ground(image=found.reference, digest=found.identity, pinned=found.pinned, **known)


def prepare(settings: Settings, wish: Wish, *, lock_file: Path, dry_run: bool = False) -> Prepared:
    """Decide what will be built. Nothing is started; an engine is asked only after everything else has passed.

    Raises:
        UnsupportedError, UsageError: it cannot work.
        CheckError: the lock no longer fits.
        EngineError, PreflightError: there is nothing to build it with; not in a dry run.
    """
    table, versions = load_table(), resolve_spec(settings, wish.capabilities)
    locked = lock.read(lock_file)
    source = origin.find_source(wish.source) if wish.source else None
    if wish.source:
        origin.require_version(wish.source, tensorflow=versions.tensorflow, bazel=versions.bazel)
    ground = find_ground(settings, required=not dry_run, bazel=wish.bazel)
    bazel = origin.find_bazel(wish.bazel, ground.bazel_digest) if wish.bazel else None
    present = collect(versions, table, ground, locked, wish.apt_snapshot)
    if locked:
        lock.require_fit(locked, present)
    pins = _fill(present, locked)
    arguments = [*versions.bazel_arguments, *wish.bazel_arguments]
    planned = plan(pins, replace(wish.means, base=ground.pinned), source=source, bazel=bazel, bazel_arguments=arguments)
    return Prepared(spec=versions, plan=planned, matrix=table, engine=ground.engine)


def collect(versions: Spec, table: Table, ground: Ground, locked: Lock | None, apt_snapshot: str = "") -> Lock:
    """The pins as they are now; a day and a commit that were locked stay what they were unless another is asked for."""
    pins = locked.pins if locked else {}
    return lock.collect(
        versions,
        table,
        base_image=ground.image,
        base_digest=ground.digest,
        apt_snapshot=apt_snapshot or pins.get("apt-snapshot", ""),
        commit=pins.get("tensorflow-commit", ""),
    )


def _fill(present: Lock, locked: Lock | None) -> Lock:
    """Pins that only another machine or day could name are taken from the lock."""
    if locked is None:
        return present
    return Lock(
        spec=present.spec, pins={name: value or locked.pins.get(name, "") for name, value in present.pins.items()}
    )


def _find_digest(client: "DockerClient", bazel: str) -> str:
    if not bazel.startswith(origin.IMAGE_SCHEME):
        return ""
    from toolkit.engine.client import find_digest

    # An image that is not here yet is pulled by BuildKit; its name stands for it until then.
    return find_digest(client, bazel.removeprefix(origin.IMAGE_SCHEME)) or ""
