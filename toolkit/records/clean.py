"""Finds what the toolkit made, says whose it is, and removes what a state folder owns; see toolkit.base.ownership."""

import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import docker
import requests
from docker.errors import APIError, DockerException, NotFound

from toolkit import records
from toolkit.base import files, naming, ownership
from toolkit.engine import buildx
from toolkit.engine.client import translating_errors
from toolkit.records.image import ImageRecord, list_docker_records
from train.native.library import find_cache
from train.system.output import inline

_OTHER_FOLDERS = r"wheel-[a-z0-9.-]*[0-9a-f]{12}|workers-.*-[0-9a-f]{8}|toolkit-cache"
"""Names of folders in the state folder that hold logs and what is left of work, and no artifact."""

_KERNELS = "kernels-*.so"
_SIZED = frozenset({"cache", "kernels"})
"""Kinds whose names have the size in them."""

_ALIVE = frozenset({"running", "paused", "restarting", "removing"})
"""States of a container in which there is a job."""


@dataclass(frozen=True, kw_only=True)
class Scope:
    """What was asked for besides what the state folder owns."""

    everything: bool = False  # what other state folders of this user own, and what none owns
    force: bool = False  # this state folder's containers in which a job is running


OWN = Scope()


@dataclass(frozen=True, kw_only=True)
class Leftover:
    kind: str
    name: str
    handle: Any  # the SDK's object, the cache mount, or the path
    bytes: int | None = None
    owner: str = ""  # whose it is; empty if it is this state folder's
    left: str = ""  # why it is not to be removed, and what would remove it; empty if it is to be removed
    used: str = ""  # why it must not be removed now, or empty
    images: tuple[str, ...] = ()  # names of the images whose only record a folder has
    force: bool = False  # whether a container may be removed while its job is running

    @property
    def title(self) -> str:
        return f"{self.kind} {self.name}"

    def describe(self) -> str:
        sized = self.bytes is not None and self.kind not in _SIZED
        return f"{self.title} ({files.format_size(self.bytes)})" if sized else self.title


def find(
    client: docker.DockerClient | None, state: Path, *, results: Sequence[Path] = (), scope: Scope = OWN
) -> list[Leftover]:
    """Return what the toolkit made: containers first, because an image in use cannot be removed.

    What another state folder owns, or none, is in the list too, and is ``left`` unless ``scope`` asks for it.
    ``results``: folders of finished wheels and runs, searched for what killed commands left.
    """
    unfinished = [item for folder in results for item in _find_unfinished(folder)]
    in_engine = _Engine(client, state, scope).find() if client else []
    return [*in_engine, *_find_folders(state, reachable=client is not None), *unfinished]


class _Engine:
    """What the toolkit made in an engine, as one state folder sees it."""

    def __init__(self, client: docker.DockerClient, state: Path, scope: Scope) -> None:
        # A link may lead to what somebody else has made, so nothing there is this one's.
        known = state.is_dir() and not state.is_symlink()
        self._client, self._scope = client, scope
        self._identity = ownership.find(state) if known else ""
        self._states = {key: path for key, path in ownership.list_states().items() if key != self._identity}
        self._own = list_docker_records(state) if known else []
        others = {path for path in self._states.values() if path != state.resolve()}
        self._others = {path: list_docker_records(path) for path in sorted(others)}

    def find(self) -> list[Leftover]:
        with translating_errors("listing what the toolkit made"):
            return [*self._find_containers(), *self._find_images(), *self._find_volumes(), *self._find_networks()]

    def _find_containers(self) -> Iterator[Leftover]:
        # An image that was committed from a container has its labels, and hands them on to containers of its own.
        committed = {item.id for item in self._client.images.list(filters={"label": naming.STATE_LABEL}, all=True)}
        committed |= {item.id for item in self._client.images.list(filters={"label": naming.JOB_LABEL}, all=True)}
        containers = {
            item.id: item
            for name in (naming.JOB_LABEL, naming.STATE_LABEL)
            for item in self._client.containers.list(all=True, filters={"label": name}, ignore_removed=True)
            if item.attrs.get("Image") not in committed
        }
        for item in containers.values():
            alive = item.status in _ALIVE
            made = Leftover(
                kind="container",
                name=str(item.name),
                handle=item,
                used="a job is running in it" if alive else "",
            )
            made = self._judge(made, item.labels)
            # The job of another state folder is never ended from here.
            force = alive and self._scope.force and not made.owner
            yield replace(made, force=force, used="" if force else made.used)

    def _find_networks(self) -> Iterator[Leftover]:
        networks = {
            item.id: item
            for name in (naming.JOB_LABEL, naming.OWNER_LABEL)
            for item in self._client.networks.list(filters={"label": name})
        }
        for item in networks.values():
            try:
                item.reload()  # the list does not tell its containers
            except NotFound:
                continue
            labels = item.attrs.get("Labels") or {}
            made = Leftover(kind="network", name=str(item.name), handle=item)
            made = self._judge(made, labels)
            forced = self._scope.force and not made.owner
            yield replace(made, used="containers use it" if item.containers and not forced else "")

    def _judge(self, made: Leftover, labels: Mapping[str, str]) -> Leftover:
        """Return a container or network with its owner, and with the reason if it is to be left."""
        labels = {name: inline(value) for name, value in labels.items()}
        identity, user = labels.get(naming.STATE_LABEL, ""), labels.get(naming.USER_LABEL, "")
        if user and user != str(os.getuid()):
            # Several users may have one state folder.
            return replace(made, owner=f"user {user}", left=f"it belongs to the user with the number {user}")
        if identity and identity == self._identity:
            return made
        known = self._states.get(identity)
        if naming.COMPOSE_LABEL in labels and not known:
            place = labels.get(naming.COMPOSE_FOLDER_LABEL, "")
            left = f"`docker compose --profile '*' down`{f' in {place}' if place else ''} removes it"
            return replace(made, owner=place or "compose", left=left)
        if identity and not known and not user:
            return replace(made, owner="not known", left="it belongs to a state folder that no register of yours has")
        owner = str(known) if known else "another state folder of yours" if identity else "not known"
        reason = f"it belongs to {owner}" if identity else "it does not say to which state folder it belongs"
        return replace(made, owner=owner, left="" if self._scope.everything else f"{reason}; --all removes it")

    def _find_images(self) -> Iterator[Leftover]:
        for item in self._client.images.list(filters={"label": f"{naming.OWNER_LABEL}=toolkit"}):
            for tag in item.tags:
                made = Leftover(kind="image", name=tag, handle=item, bytes=int(item.attrs.get("Size") or 0))
                yield self._judge_image(made, item)

    def _judge_image(self, made: Leftover, image: Any) -> Leftover:
        tag = made.name
        if not naming.is_given(tag, image.labels.get(naming.PLAN_LABEL, "")):
            left = f"named by a user; `docker image rm {tag}` removes it"
            return replace(made, owner="a user", left=left)
        if naming.STANDIN_BASE.fullmatch(tag):
            left = f"images are built on it; `docker image rm {tag}` removes it"
            return replace(made, owner="all state folders", left=left)
        users = [str(path) for path, others in self._others.items() if any(_names(record, made) for record in others)]
        # A user can give a derived image the very name of the toolkit's. Its digest is another one.
        tagged = [record for record in [*self._own, *chain(*self._others.values())] if record.tag == tag]
        if tagged and not any(record.id == str(image.id) for record in tagged):
            left = f"it is not the image that the toolkit recorded; `docker image rm {tag}` removes it"
            return replace(made, owner="not known", left=left)
        recorded_here = any(record.id == str(image.id) and record.tag == tag for record in self._own)
        owner = ", ".join(users) if users else "" if recorded_here else "not known"
        if not owner or self._scope.everything:
            return replace(made, owner=owner)
        reason = f"it is used by {owner}" if users else "no state folder of this user has a record of it"
        return replace(made, owner=owner, left=f"{reason}; --all removes it")

    def _find_volumes(self) -> Iterator[Leftover]:
        volumes = self._client.volumes.list(filters={"label": f"{naming.OWNER_LABEL}=toolkit"})
        sizes = self._measure_volumes() if volumes else {}
        for item in volumes:
            name = str(item.name)
            left = f"it has data; `docker volume rm {name}` removes it"
            owner = "all state folders"
            yield Leftover(kind="volume", name=name, handle=item, bytes=sizes.get(name), owner=owner, left=left)

    def _measure_volumes(self) -> dict[str, int]:
        try:
            rows = self._client.df().get("Volumes") or ()
        except (DockerException, requests.RequestException):
            return {}  # it may take long, or be Podman, which tells less
        sizes = {str(row["Name"]): int((row.get("UsageData") or {}).get("Size", -1)) for row in rows}
        return {name: size for name, size in sizes.items() if size >= 0}


def _names(record: ImageRecord, image: Leftover) -> bool:
    return image.name == record.tag or str(image.handle.id) == record.id


def find_caches(*, with_cache: bool) -> list[Leftover]:
    """Return Bazel's cache mounts. Those of ``reproduce WHEEL`` are always to be removed: they are used once."""
    mounts = buildx.find_caches()
    return [
        Leftover(
            kind="cache",
            name=f"{mount.name} ({mount.size})",
            handle=mount,
            bytes=mount.bytes,
            owner="all state folders",
            left=""
            if with_cache or mount.name.startswith(naming.REBUILD_CACHE)
            else "--with-cache removes what Bazel compiled",
            used="a build is using it" if mount.used else "",
        )
        for mount in mounts
    ]


def find_kernels(*, with_cache: bool = False) -> list[Leftover]:
    """Return the native kernels that were built for this user, as one: every clone of the user loads them."""
    folder = find_cache()
    size = sum(path.stat().st_size for path in folder.glob(_KERNELS))
    made = Leftover(
        kind="kernels",
        name=f"{folder} ({size / 1e6:.1f} MB)",
        handle=folder,
        bytes=size,
        owner="all state folders",
        left="" if with_cache else "--with-cache removes them",
    )
    return [made] if size else []


def _find_folders(state: Path, *, reachable: bool) -> list[Leftover]:
    if not state.is_dir() or state.is_symlink():
        return []
    images: dict[Path, tuple[str, ...]] = {}
    for record in list_docker_records(state):
        images[record.folder] = (*images.get(record.folder, ()), record.tag)
    return [
        Leftover(
            kind="folder",
            name=str(path),
            handle=path,
            bytes=files.measure(path),
            # Without the record, the image would belong to nobody.
            left="" if reachable or path not in images else "it is the record of an image, and no engine answers",
            used=_find_user(path),
            images=images.get(path, ()),
        )
        for path in sorted(state.iterdir())
        if _is_own_name(path.name) and path.is_dir() and not path.is_symlink()
    ]


def _is_own_name(name: str) -> bool:
    """Return whether only the toolkit names folders so. Other folders in the state folder are left alone."""
    kinds = "|".join(re.escape(kind.cleaned) for kind in records.KINDS if kind.cleaned)
    return re.fullmatch(rf"(?:{kinds})-[a-z0-9.-]*[0-9a-f]{{12}}|{_OTHER_FOLDERS}", name) is not None


def _find_unfinished(results: Path) -> list[Leftover]:
    return [
        Leftover(kind="folder", name=str(path), handle=path, bytes=files.measure(path))
        for path in files.find_staging(results)
        if files.is_abandoned(path)
    ]


def _find_user(folder: Path) -> str:
    return "it is being made or used" if files.is_locked(folder.with_name(f"{folder.name}.lock")) else ""


def remove_all(leftovers: Iterable[Leftover]) -> dict[str, str]:
    """Remove things, and return why those stay that could not be removed, by their titles.

    The record of an image stays where the image does: without it, the image would belong to nobody.
    """
    kept: dict[str, str] = {}
    for item in leftovers:
        stays = next((name for name in item.images if f"image {name}" in kept), "")
        if reason := item.used or (f"its image {stays} stays" if stays else remove(item)):
            kept[item.title] = reason
    return kept


def remove(leftover: Leftover) -> str:
    """Remove a thing, and return an empty text, or why it stays."""
    try:
        match leftover.kind:
            case "container":
                # Without force, the engine refuses if a job was started in it meanwhile.
                leftover.handle.remove(force=leftover.force, v=True)
            case "image":
                # By name, without force: other names of the image and containers made from it stay.
                leftover.handle.client.images.remove(leftover.name)
            case "network":
                leftover.handle.remove()
            case "cache":
                return buildx.remove_cache(leftover.handle)
            case "kernels":
                # One by one: a job may be building in this folder.
                for path in leftover.handle.glob(_KERNELS):
                    path.unlink(missing_ok=True)
            case _:
                shutil.rmtree(leftover.handle, onerror=_pass_over_gone)
                leftover.handle.with_name(f"{leftover.handle.name}.lock").unlink(missing_ok=True)
    except NotFound:
        return ""  # somebody else removed it
    except APIError as error:
        return str(error.explanation or error)
    except OSError as error:
        return error.strerror or str(error)
    except RecursionError:
        return "its folders are nested too deeply; `rm -rf` removes it"
    return ""


def _pass_over_gone(_call: object, _path: str, caught: tuple[Any, Any, Any]) -> None:
    """Go on where another command has removed something meanwhile."""
    if not isinstance(caught[1], FileNotFoundError):
        raise caught[1]
