"""Describes a container once, for the SDK and for the printed command. compose.yaml has the same options.

It runs as the user whom :mod:`toolkit.engine.user` chooses. Compose reads the same user from the ``.env`` that
``toolkit doctor --write-env`` writes, so that either of them can continue a run of the other.
"""

import json
import os
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from toolkit.base import files, naming
from toolkit.base.steps import quote_fields, repeat
from toolkit.engine import Commands, Job, Mount, Network, gpus
from toolkit.engine.user import SAME, User, Users, choose, redirect_cache

UNOWNED: Mapping[str, str] = {naming.OWNER_LABEL: "toolkit"}
"""Labels of what is made for no state folder."""

TEMPORARY = {"/tmp": "rw,nosuid,nodev,size=2g,mode=1777"}  # noqa: S108 - a tmpfs inside the container


@dataclass(frozen=True, kw_only=True)
class Container:
    """A container with only the rights that its job needs. The defaults apply to every job."""

    image: str
    name: str  # left out of the printed command, so that it can be run twice
    argv: tuple[str, ...]  # arguments of ``entrypoint``
    user: str  # ``uid:gid``
    groups: tuple[str, ...] = ()  # numbers of its other groups
    userns: str = ""  # ``host`` where the engine must not map users
    entrypoint: str = "python"
    mounts: tuple[tuple[str, str, bool], ...] = ()  # source, target and whether it is read-only, of each bind mount
    labels: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    inherit: tuple[str, ...] = ()  # names of variables whose values, which may be secrets, are never printed
    network: str = "none"  # ``none``, ``bridge`` or the name of a network
    published: tuple[str, int] | None = None  # address and port of this machine, for the same port of the container
    read_only: bool = True
    # options of each temporary file system by path
    tmpfs: Mapping[str, str] = field(default_factory=lambda: dict(TEMPORARY))
    shm_size: str = "1g"
    cap_drop: tuple[str, ...] = ("ALL",)
    security_opt: tuple[str, ...] = ("no-new-privileges",)
    pids_limit: int = 4096
    init: bool = True
    terminal: bool = False
    gpus: bool = False
    devices: tuple[str, ...] = ()  # the only GPUs, by number or name; empty for all
    cores: str = ""  # that it may use, as 0,1; empty for all

    def to_sdk(self) -> dict[str, Any]:
        from docker import types
        from docker.types import DeviceRequest

        chosen = {"device_ids": [*self.devices]} if self.devices else {"count": -1}
        return {
            "image": self.image,
            "name": self.name,
            "entrypoint": [self.entrypoint],
            "command": list(self.argv),
            "labels": dict(self.labels),
            "user": self.user,
            "group_add": list(self.groups),
            "userns_mode": self.userns or None,
            "environment": dict(self.environment) | {name: os.environ[name] for name in self.inherit},
            # Not the short form, in which a path cannot have a colon.
            "mounts": [
                types.Mount(target, source, type="bind", read_only=read_only)
                for source, target, read_only in self.mounts
            ],
            "network_mode": self.network,
            "ports": {f"{self.published[1]}/tcp": self.published} if self.published else None,
            "read_only": self.read_only,
            "tmpfs": dict(self.tmpfs),
            "shm_size": self.shm_size,
            "cap_drop": list(self.cap_drop),
            "security_opt": list(self.security_opt),
            "pids_limit": self.pids_limit,
            "cpuset_cpus": self.cores or None,
            "init": self.init,
            "tty": self.terminal,
            "device_requests": [DeviceRequest(capabilities=[["gpu"]], **chosen)] if self.gpus else None,
        }

    def to_command(self) -> list[str]:
        argv = ["docker", "run", "--rm"]
        argv += [option for option, given in (("--read-only", self.read_only), ("--init", self.init)) if given]
        argv += ["--user", self.user, *repeat("--group-add", self.groups), *repeat("--cap-drop", self.cap_drop)]
        argv += ["--userns", self.userns] if self.userns else []
        argv += [*repeat("--security-opt", self.security_opt), "--network", self.network]
        argv += ["--publish", name_port(*self.published)] if self.published else []
        argv += ["--pids-limit", str(self.pids_limit), "--shm-size", self.shm_size]
        argv += ["--cpuset-cpus", self.cores] if self.cores else []
        argv += [f"--tmpfs={path}:{options}" for path, options in self.tmpfs.items()]
        argv += [f"--label={name}={value}" for name, value in self.labels.items()]
        for source, target, read_only in self.mounts:
            fields = ["type=bind", f"source={source}", f"target={target}"]
            fields += ["readonly"] if read_only else []
            argv += [f"--mount={quote_fields(*fields)}"]
        argv += [f"--env={name}={value}" for name, value in self.environment.items()]
        argv += [f"--env={name}" for name in self.inherit]
        visible = quote_fields(f"device={','.join(self.devices)}") if self.devices else "all"
        argv += ["--gpus", visible] if self.gpus else []
        argv += ["--tty"] if self.terminal else []
        return [*argv, "--entrypoint", self.entrypoint, self.image, *self.argv]


def describe(
    job: Job,
    *,
    image: str,
    user: User | None = None,
    terminal: bool = False,
    labels: Mapping[str, str] = UNOWNED,
) -> Container:
    """Describe the container of a job, by default for an engine whose users are those of this machine.

    ``labels``: those of :func:`toolkit.base.ownership.label`.
    """
    network, user = job.own_network, user or choose(job, SAME)
    job = replace(job, mounts=tuple(redirect_cache(mount, user) for mount in job.mounts))
    return Container(
        image=image,
        name=name_job(job.title),
        argv=tuple(part.target if isinstance(part, Mount) else part for part in job.argv),
        user=user.ids,
        groups=tuple(map(str, user.groups)),
        userns="host" if user.mapped else "",
        mounts=tuple((str(mount.source.resolve()), mount.target, not mount.writable) for mount in job.mounts),
        labels={**labels, naming.JOB_LABEL: job.title},
        environment={**job.variables, **name_mounts(job)},
        inherit=tuple(name for name in job.inherit if name in os.environ),
        network=network.name if network else "bridge" if job.network else "none",
        published=job.published,
        terminal=terminal,
        gpus=job.gpu,
        devices=tuple(gpus.split(gpus.choose(job))),
        cores=list_cores(),
    )


def name_port(address: str, port: int) -> str:
    """Return a published port as ``docker run`` takes it."""
    return f"[{address}]:{port}:{port}" if ":" in address else f"{address}:{port}:{port}"


def name_job(title: str) -> str:
    return f"toolkit-{title}-{uuid.uuid4().hex[:8]}"


def plan_network(labels: Mapping[str, str] = UNOWNED) -> Network:
    name = name_job("network")
    options = repeat("--label", (f"{key}={value}" for key, value in {**labels, naming.JOB_LABEL: "network"}.items()))
    make = ("docker", "network", "create", *options, name)
    return Network(name=name, make=(make,), remove=(("docker", "network", "rm", name),))


def list_cores() -> str:
    """Return the cores in this program's affinity mask, which a container does not inherit; empty if it has all."""
    cores = os.sched_getaffinity(0)
    return ",".join(map(str, sorted(cores))) if len(cores) < (os.cpu_count() or 1) else ""


def list_commands(job: Job, *, image: str, users: Users = SAME, labels: Mapping[str, str] = UNOWNED) -> Commands:
    """Return the commands that run a job by hand: make the folders in which it writes, and run it.

    Raises what :func:`toolkit.engine.user.choose` raises.
    """
    user = choose(job, users)
    return (*_make_folders_for(user, job), tuple(describe(job, image=image, user=user, labels=labels).to_command()))


def make_folders(mounts: Iterable[Mount]) -> Commands:
    """Return the command that makes the folders in which a job writes; none if it writes in none."""
    writable = [str(mount.source.resolve()) for mount in mounts if mount.writable]
    return (("mkdir", "--parents", *writable),) if writable else ()


def _make_folders_for(user: User, job: Job) -> Commands:
    if os.getuid() or user.uid <= 0:
        return make_folders(job.mounts)
    caches = [mount for mount in job.mounts if mount.shared]
    written = [mount.source.resolve() for mount in job.mounts if mount.writable and not mount.shared]
    made = [path for folder in written for path in files.find_missing(folder)]
    made += [place.source for place in (redirect_cache(mount, user) for mount in caches) if place not in caches]
    missing = dict.fromkeys(str(path) for path in made if not path.exists())
    owner = (f"--owner={user.uid}", f"--group={user.gid}")
    return (*make_folders(caches), *([("install", "--directory", *owner, *missing)] if missing else []))


def name_mounts(job: Job) -> dict[str, str]:
    """Return the variable that tells a job the paths of its mounts on the host; nothing if it has none."""
    # A file in a mounted folder gets its name from that of the folder. Thousands of names would not fit in a variable.
    parts = [part for part in job.argv if isinstance(part, Mount)]
    folders = {mount.target for mount in job.mounts}
    mounts = [*job.mounts, *(part for part in parts if part.target.rpartition("/")[0] not in folders)]
    names = {mount.target: str(mount.source) for mount in mounts}
    return {naming.PATHS_VARIABLE: json.dumps(names, ensure_ascii=False, sort_keys=True)} if names else {}
