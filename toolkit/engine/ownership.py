"""Outputs belong to the caller, and no container runs as root.

For an ordinary user both are one: the container runs under the user's own ids. A caller who is root gets a container
under the image's own user; the writable folders are lent to it for the time of the run and taken back.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from toolkit.engine.job import Mount

IMAGE_USER = 10001
"""Uid and gid of the user in our images."""


def container_user() -> str:
    """``uid:gid`` for the container."""
    uid, gid = os.getuid(), os.getgid()
    return f"{uid}:{gid}" if uid else f"{IMAGE_USER}:{IMAGE_USER}"


@contextmanager
def lending(mounts: Iterable[Mount]) -> Iterator[None]:
    """Lend the writable mounts to the container's user while the block runs; then all in them belongs to whom it did.

    What several jobs share is given for good: nobody knows when the last of them is done, and it is a cache.
    Does nothing for callers who are not root.
    """
    lent = [mount for mount in mounts if mount.writable] if os.getuid() == 0 else []
    owners = {mount.source: mount.source.stat() for mount in lent if not mount.shared}
    for mount in lent:
        give(mount.source, IMAGE_USER, IMAGE_USER)
    try:
        yield
    finally:
        for folder, owner in owners.items():
            give(folder, owner.st_uid, owner.st_gid)


def give(folder: Path, uid: int, gid: int) -> None:
    """Change the owner of a folder and all in it. Links are changed, never followed: what they name is not ours."""
    for path in [folder, *folder.rglob("*")]:
        # A file of a job that is running may go away at any moment.
        with suppress(FileNotFoundError):
            os.chown(path, uid, gid, follow_symlinks=False)
