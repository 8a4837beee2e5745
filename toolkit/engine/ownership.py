"""Who owns what a job leaves: one rule for this program and for compose. No container runs as root.

For an ordinary user the container runs under the user's own ids, and so the outputs are the user's. A caller who is
root gets a container under the image's own user, and the outputs belong to that user for good, as with the ``.env``
that ``toolkit doctor --write-env`` writes: a run that began one way can go on the other.
"""

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from toolkit.engine.job import Mount

IMAGE_USER = 10001
"""Uid and gid of the user in our images."""


def container_user() -> str:
    """``uid:gid`` for the container."""
    uid, gid = os.getuid(), os.getgid()
    return f"{uid}:{gid}" if uid else f"{IMAGE_USER}:{IMAGE_USER}"


def give_to_container(mounts: Iterable[Mount]) -> None:
    """Give the writable mounts to the container's user, where root calls; nothing otherwise.

    The folder that holds a mount is given too where the mount is all that it holds: it was made for it.
    """
    if os.getuid():
        return
    for mount in mounts:
        if mount.writable:
            give(mount.source, IMAGE_USER, IMAGE_USER)
            parent = mount.source.parent
            if not mount.shared and os.listdir(parent) == [mount.source.name]:  # noqa: PTH208
                os.chown(parent, IMAGE_USER, IMAGE_USER, follow_symlinks=False)


def give_to_parent(mounts: Iterable[Mount]) -> None:
    """Give what a job on the host wrote to the owner of the folder that holds it, where root calls.

    A run of root beside runs that containers write can then go on in a container, too.
    """
    if os.getuid():
        return
    for mount in mounts:
        if mount.writable and not mount.shared and mount.source.exists():
            owner = mount.source.parent.stat()
            if owner.st_uid != mount.source.stat().st_uid:
                give(mount.source, owner.st_uid, owner.st_gid)


def give(folder: Path, uid: int, gid: int) -> None:
    """Change the owner of a folder and all in it. Links are changed, never followed: what they name is not ours."""
    for path in [folder, *folder.rglob("*")]:
        # A file of a job that is running may go away at any moment.
        with suppress(FileNotFoundError):
            os.chown(path, uid, gid, follow_symlinks=False)
