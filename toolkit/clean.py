"""Removes what we made, found by our label or our marks, and nothing else."""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docker
from docker.errors import APIError

from toolkit import naming
from toolkit.engine.client import translating_errors
from toolkit.manifest import FILE

MARKS = (FILE, "install.log", "build.log")
"""A folder of the state is ours if it has one of these: a folder that lacks them is somebody else's."""


@dataclass(frozen=True, kw_only=True)
class Leftover:
    """One thing of ours.

    Attributes:
        kind: ``container``, ``image``, ``volume`` or ``folder``.
        name: what a person calls it.
        handle: the SDK's object, or the path.
        running: whether a job is in it now.
    """

    kind: str
    name: str
    handle: Any
    running: bool = False


def find(client: docker.DockerClient | None, state: Path, *, with_base: bool = False) -> list[Leftover]:
    """Everything of ours: containers first, for an image in use cannot be removed.

    Args:
        client: a connection to the engine, or None to look at folders only.
        state: the folder of environments, logs and manifests.
        with_base: whether base stand-ins count; making one again takes a Debian mirror.
    """
    found: list[Leftover] = []
    if client is not None:
        ours: dict[str, str | list[str] | bool] = {"label": f"{naming.OWNER_LABEL}=toolkit"}
        with translating_errors("listing what is ours"):
            found += [
                Leftover(kind="container", name=str(item.name), handle=item, running=item.status == "running")
                for item in client.containers.list(all=True, filters=ours)
            ]
            found += [
                Leftover(kind="image", name=(item.tags or [item.short_id])[0], handle=item)
                for item in client.images.list(filters=ours)
                if with_base or naming.STANDIN_BASE not in item.tags
            ]
            found += [
                Leftover(kind="volume", name=str(item.name), handle=item) for item in client.volumes.list(filters=ours)
            ]
    if state.is_dir() and not state.is_symlink():
        for path in sorted(state.iterdir()):
            marked = path.is_dir() and not path.is_symlink() and any((path / mark).exists() for mark in MARKS)
            if marked or path.suffix == ".lock":
                found.append(Leftover(kind="folder", name=str(path), handle=path))
    return found


def remove(leftover: Leftover) -> str | None:
    """Remove one; returns None, or why it could not be removed."""
    try:
        match leftover.kind:
            case "container":
                leftover.handle.remove(force=True, v=True)
            case "image":
                leftover.handle.client.images.remove(leftover.handle.id, force=True)
            case "volume":
                leftover.handle.remove()
            case _:
                shutil.rmtree(leftover.handle) if leftover.handle.is_dir() else leftover.handle.unlink()
    except APIError as error:
        return str(error.explanation or error)
    except OSError as error:
        return error.strerror or str(error)
    return None
