"""Chooses the user of a job in a container, who owns the files that the job writes.

A job has no capabilities, so it reads and writes by plain ownership alone, whatever its number is:

- An ordinary user's job has that user's ids, and the groups of the user that own what it gets.
- Root's job has the ids of the owner of the nearest existing folder in which it writes, which is root in root's own
  folders. Its files so belong to the owner of the folder around them. A job that writes nothing has the ids of the
  image's user, or of the owner of what that user may not read.
- A rootless engine's root is the user who started the engine, and its other ids are subordinate ids that read no
  private folder. A job there has the ids 0:0.
- An engine that maps users (``--userns-remap``) is asked not to map those of the job.

Folders that exist keep owner and mode; only root's new folders are given away. The other ways were refused. Docker maps
no ids of mounted folders. A copy of the data costs its size, and a killed command leaves it. CAP_DAC_OVERRIDE puts
a job above the modes of files, and CAP_DAC_READ_SEARCH lets it out of its mounts by open_by_handle_at(2).
"""

import grp
import os
import pwd
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from toolkit.base import files
from toolkit.base.errors import DataError, PreflightError
from toolkit.engine import Job, Mount

IMAGE_USER = 10001
"""Uid and gid of the user in the project's images."""


@dataclass(frozen=True, kw_only=True)
class Users:
    """How the users in an engine's containers are related to those of this machine. By default they are the same."""

    rootless: bool = False  # whether root in a container is the user who started the engine
    mapped: bool = False  # whether the engine maps users, unless it is asked not to
    owner: tuple[int, int] | None = None  # uid and gid of a rootless engine's user, if it is of this machine


SAME = Users()


@dataclass(frozen=True, kw_only=True)
class User:
    ids: str  # ``uid:gid`` inside the container
    uid: int  # on this machine; -1 if it is not known
    gid: int
    groups: tuple[int, ...] = ()  # groups besides
    mapped: bool = False  # whether the engine must be asked not to map it
    why: str  # who it is, for messages

    def may(self, status: os.stat_result, bits: int) -> bool:
        """Return whether the mode of a file grants bits of rwx, without any capability."""
        shift = 6 if status.st_uid == self.uid else 3 if status.st_gid in {self.gid, *self.groups} else 0
        return not bits & ~(status.st_mode >> shift)


def choose(job: Job, users: Users) -> User:
    """Return the user of a job.

    Raises DataError if that user could not read a mount, and PreflightError if not write in a folder.
    """
    candidates = _list_candidates(job, users)
    if os.getuid() and not users.rootless:
        return candidates[0]  # the caller, who has read the data to plan the job
    user = next((candidate for candidate in candidates if not any(_find_unreadable(job, candidate))), candidates[0])
    for path in _find_unreadable(job, user):
        owner = name_user(path.stat().st_uid)
        raise DataError(
            f"a container cannot read {path}",
            why=f"{_describe_mode(path)}, and the job runs as {user.why}",
            remedy=f"let all read it (`chmod -R a+rX`), write to a folder of {owner}, or use --engine host",
        )
    for mount in job.mounts:
        place = find_existing(mount.source)
        if mount.writable and not mount.shared and user.uid >= 0 and not _may(user, place, 3):
            raise PreflightError(
                f"a container cannot write in {place}",
                why=f"{_describe_mode(place)}, and the job runs as {user.why}",
                remedy="choose a folder of this user, change its owner, or use --engine host",
            )
    return user


def redirect_cache(mount: Mount, user: User) -> Mount:
    """Return a mount in which a user can write: in place of another user's cache, a folder in it for this one."""
    if not (mount.writable and mount.shared) or user.uid < 0 or _may(user, find_existing(mount.source), 3):
        return mount
    return replace(mount, source=mount.source / f"uid-{user.uid}")


def make_caches(job: Job, user: User) -> None:
    """Make the folders that a user gets in the caches of others."""
    for mount in job.mounts:
        folder = redirect_cache(mount, user).source
        if folder != mount.source and not folder.exists():
            folder.parent.mkdir(parents=True, exist_ok=True)
            files.make_folder(folder, (user.uid, user.gid))


def chown_job_files(job: Job, since: float) -> None:
    """Give what root's job on the host wrote since a time to the owners of the folders around it.

    In a container it has their ids from the start. Folders that were there before keep their owner.
    """
    parts = [part.source for part in job.argv if isinstance(part, Mount)]
    for mount in job.mounts:
        if mount.writable and not mount.shared and mount.source.is_dir():
            names = [part.name for part in parts if part.absolute().parent == mount.source.absolute()]
            files.chown_like_parent(mount.source, since, names)


def find_existing(path: Path) -> Path:
    """Return the path, or the nearest folder around it that exists."""
    path = path.absolute()
    return next(folder for folder in (path, *path.parents) if folder.exists())


def _list_candidates(job: Job, users: Users) -> list[User]:
    if users.rootless:
        uid, gid = users.owner or (-1, -1)
        return [User(ids="0:0", uid=uid, gid=gid, why=f"{name_user(uid)}, whose engine is rootless")]
    uid, gid = os.getuid(), os.getgid()
    if uid:
        owning = {find_existing(mount.source).stat().st_gid for mount in job.mounts}
        groups = tuple(sorted((owning & set(os.getgroups())) - {gid}))
        return [User(ids=f"{uid}:{gid}", uid=uid, gid=gid, groups=groups, mapped=users.mapped, why=name_user(uid))]
    written = [mount for mount in job.mounts if mount.writable]
    outputs = [mount for mount in written if not mount.shared]
    owners = [_describe_owner(mount, users) for mount in outputs[:1] or written]
    if not outputs:
        ids = f"{IMAGE_USER}:{IMAGE_USER}"
        owners.append(User(ids=ids, uid=IMAGE_USER, gid=IMAGE_USER, mapped=users.mapped, why="the user of the image"))
        owners += [_describe_owner(mount, users) for mount in job.mounts]
    return owners


def _describe_owner(mount: Mount, users: Users) -> User:
    place = find_existing(mount.source)
    uid, gid = place.stat().st_uid, place.stat().st_gid
    return User(
        ids=f"{uid}:{gid}", uid=uid, gid=gid, mapped=users.mapped, why=f"{name_user(uid)}, the owner of {place}"
    )


def _find_unreadable(job: Job, user: User) -> Iterator[Path]:
    """Yield what a user may not read of what a job reads: of a folder all but hidden names and links."""
    if user.uid < 0:
        return
    for mount in [mount for mount in job.mounts if not mount.writable]:
        parts = [part for part in job.argv if isinstance(part, Mount)]
        named = [part.source for part in parts if f"{part.target}/".startswith(f"{mount.target}/")]
        if mount.source not in named and not _may(user, mount.source, 1):
            yield mount.source
        for place in named:
            yield from _find_unreadable_below(place, user)


def _find_unreadable_below(place: Path, user: User) -> Iterator[Path]:
    if place.exists():
        if not _may_read(user, place):
            yield place
        for folder, folders, names in os.walk(place):
            folders[:] = [name for name in folders if not name.startswith(".")]
            paths = [Path(folder, name) for name in (*folders, *names) if not name.startswith(".")]
            yield from (path for path in paths if not path.is_symlink() and not _may_read(user, path))


def _may_read(user: User, path: Path) -> bool:
    return _may(user, path, 5 if path.is_dir() else 4)


def _may(user: User, path: Path, bits: int) -> bool:
    # An access list may grant what the mode does not show: the job then finds out.
    with suppress(OSError):
        return user.may(path.stat(), bits) or "system.posix_acl_access" in os.listxattr(path)
    return True


def _describe_mode(path: Path) -> str:
    status = path.stat()
    owner = f"{name_user(status.st_uid)}, group {_name_group(status.st_gid)}"
    return f"it belongs to {owner}, and has mode {stat.S_IMODE(status.st_mode):04o}"


def name_user(uid: int) -> str:
    with suppress(KeyError, OverflowError):
        return pwd.getpwuid(uid).pw_name
    return f"uid {uid}" if uid >= 0 else "a user of another machine"


def _name_group(gid: int) -> str:
    with suppress(KeyError, OverflowError):
        return grp.getgrgid(gid).gr_name
    return f"gid {gid}"
