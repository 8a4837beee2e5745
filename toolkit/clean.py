import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docker
from docker.errors import APIError

from toolkit import files, naming
from toolkit.engine import buildx
from toolkit.engine.client import translating_errors
from train.native.library import find_cache

FOLDERS = re.compile(r"(environment|image|wheel)-[a-z0-9.-]*[0-9a-f]{12}|workers-.*-[0-9a-f]{8}|toolkit-cache")
"""Folder names that only the toolkit uses. Other folders in the state folder are left alone."""

_KERNELS = "kernels-*.so"


@dataclass(frozen=True, kw_only=True)
class Leftover:
    kind: str
    name: str
    handle: Any  # the SDK's object, the cache mount, or the path
    used: str = ""  # why it must not be removed now, or empty


def find(
    client: docker.DockerClient | None, state: Path, *, results: Sequence[Path] = (), with_base: bool = False
) -> list[Leftover]:
    """Return everything that the toolkit made: containers first, because an image in use cannot be removed.

    ``results``: folders of finished wheels and runs, searched for what killed commands left. ``with_base``: base
    stand-ins too; making them again needs a Debian mirror.
    """
    unfinished = [item for folder in results for item in _find_unfinished(folder)]
    return [*(_find_in_engine(client, with_base) if client else ()), *_find_folders(state), *unfinished]


def _find_in_engine(client: docker.DockerClient, with_base: bool) -> list[Leftover]:
    owned: dict[str, str | list[str] | bool] = {"label": f"{naming.OWNER_LABEL}=toolkit"}
    jobs: dict[str, str | list[str] | bool] = {"label": naming.JOB_LABEL}
    with translating_errors("listing what the toolkit made"):
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
            for item in client.images.list(filters=owned)
            for tag in item.tags
            if _is_named_by_toolkit(item, tag) and (with_base or not naming.STANDIN_BASE.fullmatch(tag))
        ]
        volumes = [
            Leftover(kind="volume", name=str(item.name), handle=item) for item in client.volumes.list(filters=owned)
        ]
        networks = [
            Leftover(
                kind="network", name=str(item.name), handle=item, used="containers use it" if item.containers else ""
            )
            for item in client.networks.list(filters=jobs, greedy=True)
        ]
    return [*containers, *images, *volumes, *networks]


def find_others(client: docker.DockerClient) -> list[str]:
    """Return the names of images with the toolkit's label that a user named or derived."""
    with translating_errors("listing the images that the toolkit did not name"):
        images = client.images.list(filters={"label": f"{naming.OWNER_LABEL}=toolkit"})
    return sorted(tag for item in images for tag in item.tags if not _is_named_by_toolkit(item, tag))


def find_caches(*, with_cache: bool) -> tuple[list[Leftover], list[buildx.CacheMount]]:
    """Return Bazel's cache mounts to remove, those of ``verify --rebuild`` at least, and those to keep."""
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


def find_kernels() -> list[Leftover]:
    """Return the native kernels that were built for this user, as one: every clone of the user loads them."""
    folder = find_cache()
    size = sum(path.stat().st_size for path in folder.glob(_KERNELS))
    return [Leftover(kind="kernels", name=f"{folder} ({size / 1e6:.1f} MB)", handle=folder)] if size else []


def _is_named_by_toolkit(image: Any, tag: str) -> bool:
    return naming.is_given(tag, image.labels.get(naming.PLAN_LABEL, ""))


def _find_folders(state: Path) -> list[Leftover]:
    if not state.is_dir() or state.is_symlink():
        return []
    return [
        Leftover(kind="folder", name=str(path), handle=path, used=_find_user(path))
        for path in sorted(state.iterdir())
        if FOLDERS.fullmatch(path.name) and path.is_dir() and not path.is_symlink()
    ]


def _find_unfinished(results: Path) -> list[Leftover]:
    # The folder of a running command is never removed, not even with --force.
    return [
        Leftover(kind="folder", name=str(path), handle=path)
        for path in files.find_staging(results)
        if files.is_abandoned(path)
    ]


def _find_user(folder: Path) -> str:
    return "it is being made or used" if files.is_locked(folder.with_name(f"{folder.name}.lock")) else ""


def remove(leftover: Leftover) -> str:
    try:
        match leftover.kind:
            case "container":
                leftover.handle.remove(force=True, v=True)
            case "image":
                # By name, without force: other names of the image and containers made from it stay.
                leftover.handle.client.images.remove(leftover.name)
            case "volume" | "network":
                leftover.handle.remove()
            case "cache":
                return buildx.remove_cache(leftover.handle)
            case "kernels":
                # One by one: a job may be building in this folder.
                for path in leftover.handle.glob(_KERNELS):
                    path.unlink(missing_ok=True)
            case _:
                shutil.rmtree(leftover.handle)
                leftover.handle.with_name(f"{leftover.handle.name}.lock").unlink(missing_ok=True)
    except APIError as error:
        return str(error.explanation or error)
    except OSError as error:
        return error.strerror or str(error)
    return ""
