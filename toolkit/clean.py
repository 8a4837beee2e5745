"""Removes what we made, found by our labels and our own records, and nothing else."""

import fcntl
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docker
from docker.errors import APIError

from toolkit import naming
from toolkit.engine import buildx
from toolkit.engine.client import translating_errors
from toolkit.wheel import folder as wheel_folder

FOLDERS = re.compile(r"(environment|image|wheel)-[a-z0-9.-]*[0-9a-f]{12}|toolkit-cache")
"""Names that only we give. A folder of another name in the state folder is somebody else's."""


@dataclass(frozen=True, kw_only=True)
class Leftover:
    """One thing of ours.

    Attributes:
        kind: ``container``, ``image``, ``volume``, ``cache`` or ``folder``.
        name: what a person calls it.
        handle: the SDK's object, the cache mount, or the path.
        used: why it is not to be removed now, or empty.
    """

    kind: str
    name: str
    handle: Any
    used: str = ""


def find(
    client: docker.DockerClient | None, state: Path, *, dist: Path | None = None, with_base: bool = False
) -> list[Leftover]:
    """Return everything of ours: containers first, for an image in use cannot be removed.

    An image must have our label and a name that we give by ourselves: see :func:`find_others`.

    Args:
        client: a connection to the engine, or None to look at folders only.
        state: the folder of environments, logs and manifests.
        dist: the folder of finished wheels, which are kept: only what killed builds left in it counts.
        with_base: whether base stand-ins count; making one again takes a Debian mirror.
    """
    halves = _find_halves(dist) if dist else ()
    return [*(_find_in_engine(client, with_base) if client else ()), *_find_folders(state), *halves]


def _find_in_engine(client: docker.DockerClient, with_base: bool) -> list[Leftover]:
    ours: dict[str, str | list[str] | bool] = {"label": f"{naming.OWNER_LABEL}=toolkit"}
    jobs: dict[str, str | list[str] | bool] = {"label": naming.JOB_LABEL}
    with translating_errors("listing what is ours"):
        containers = [
            Leftover(
                kind="container",
                name=str(item.name),
                handle=item,
                used="a job is running in it" if item.status == "running" else "",
            )
            for item in client.containers.list(all=True, filters=jobs)
        ]
        images = [
            Leftover(kind="image", name=tag, handle=item)
            for item in client.images.list(filters=ours)
            for tag in item.tags
            if _is_ours(item, tag) and (with_base or tag != naming.STANDIN_BASE)
        ]
        volumes = [
            Leftover(kind="volume", name=str(item.name), handle=item) for item in client.volumes.list(filters=ours)
        ]
    return [*containers, *images, *volumes]


def find_others(client: docker.DockerClient) -> list[str]:
    """Return the names of images that have our label and are left alone.

    A user named them, at ``toolkit build-image --tag`` or for what was built on ours: labels pass on.
    """
    with translating_errors("listing what is built on ours"):
        images = client.images.list(filters={"label": f"{naming.OWNER_LABEL}=toolkit"})
    return sorted(tag for item in images for tag in item.tags if not _is_ours(item, tag))


def find_caches(*, with_cache: bool) -> tuple[list[Leftover], list[buildx.CacheMount]]:
    """Return the cache mounts of Bazel: those to remove, and those that stay.

    Args:
        with_cache: whether those count that the next build would go on with. One that ``verify --rebuild`` left always
            counts, for no build comes back to it.
    """
    found = buildx.find_caches()
    removed = [each for each in found if with_cache or each.name.startswith(naming.REBUILD_CACHE)]
    return [
        Leftover(
            kind="cache",
            name=f"{each.name} ({each.size})",
            handle=each,
            used="a build is using it" if each.used else "",
        )
        for each in removed
    ], [each for each in found if each not in removed]


def _is_ours(image: Any, tag: str) -> bool:
    return naming.is_given(tag, image.labels.get(naming.PLAN_LABEL, ""))


def _find_folders(state: Path) -> list[Leftover]:
    if not state.is_dir() or state.is_symlink():
        return []
    return [
        Leftover(kind="folder", name=str(path), handle=path, used=_find_user(path))
        for path in sorted(state.iterdir())
        if FOLDERS.fullmatch(path.name) and path.is_dir() and not path.is_symlink()
    ]


def _find_halves(dist: Path) -> list[Leftover]:
    # One that a build works in is no leftover: not even --force may take it away from under the build.
    return [
        Leftover(kind="folder", name=str(path), handle=path)
        for path in wheel_folder.find_staging(dist)
        if wheel_folder.is_abandoned(path)
    ]


def _find_user(folder: Path) -> str:
    lock = folder.with_name(f"{folder.name}.lock")
    if lock.is_file():
        with lock.open() as stream:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return "it is being made or used"
    return ""


def remove(leftover: Leftover) -> str:
    """Remove one; returns why it could not be removed, or nothing."""
    try:
        match leftover.kind:
            case "container":
                leftover.handle.remove(force=True, v=True)
            case "image":
                # By name, without force: its other names, and containers that others made of it, are not ours to break.
                leftover.handle.client.images.remove(leftover.name)
            case "volume":
                leftover.handle.remove()
            case "cache":
                return buildx.remove_cache(leftover.handle)
            case _:
                shutil.rmtree(leftover.handle)
                leftover.handle.with_name(f"{leftover.handle.name}.lock").unlink(missing_ok=True)
    except APIError as error:
        return str(error.explanation or error)
    except OSError as error:
        return error.strerror or str(error)
    return ""
