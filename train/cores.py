"""Counts the cores that this process may use: those of its affinity mask, or fewer if a container has a CPU quota.

More threads than a quota pays for are stopped by the kernel. Linux has it in ``cpu.max`` (admin-guide/cgroup-v2) or
``cpu.cfs_quota_us`` (scheduler/sched-bwc). The wheel build uses this file alone: it imports only the standard library.
"""

import math
import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

PROC = Path("/proc/self")


def count_cores(proc: Path = PROC) -> int:
    """Return the number of cores this process may use, at least 1; part of a core counts as one."""
    cores = len(os.sched_getaffinity(0))
    quota = read_quota(proc)
    return cores if quota is None else max(1, min(cores, math.ceil(quota)))


def read_quota(proc: Path = PROC) -> float | None:
    """Return the lowest CPU quota, in cores, of the groups this process is in and those around them; None without."""
    quotas = [_read_group(folder) for folder in find_groups("cpu", proc)]
    return min((quota for quota in quotas if quota is not None), default=None)


def find_groups(controller: str, proc: Path = PROC) -> Iterator[Path]:
    """Yield the folders of the groups of this process, and of those around them, by a controller such as ``cpu``."""
    memberships = dict(_read_memberships(controller, proc))
    for kind, root, folder in _read_mounts(controller, proc):
        if kind not in memberships:
            continue
        # Inside a container the mount often begins at the container's own group, but the path is the whole one.
        # A namespace can name groups outside of it as /../..: of those, only the mounted one can be read.
        inside = memberships[kind].relative_to(root) if memberships[kind].is_relative_to(root) else PurePosixPath()
        if ".." in inside.parts:
            inside = PurePosixPath()
        for part in (inside, *inside.parents):
            yield folder / part


def _read_memberships(controller: str, proc: Path) -> Iterator[tuple[str, PurePosixPath]]:
    """Yield the kind of a hierarchy, ``cgroup`` or ``cgroup2``, and the path of this process' group in it."""
    for line in _read_lines(proc / "cgroup"):
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            yield "cgroup2", PurePosixPath(path)
        elif controller in controllers.split(","):
            yield "cgroup", PurePosixPath(path)


def _read_mounts(controller: str, proc: Path) -> Iterator[tuple[str, PurePosixPath, Path]]:
    """Yield kind, root and folder of each mounted hierarchy with a controller (proc_pid_mountinfo(5))."""
    for line in _read_lines(proc / "mountinfo"):
        mount, _, system = line.partition(" - ")
        fields, (kind, _, options) = mount.split(), (*system.split(maxsplit=2), "", "", "")[:3]
        if len(fields) > 4 and (kind == "cgroup2" or (kind == "cgroup" and controller in options.split(","))):
            yield kind, PurePosixPath(_unescape(fields[3])), Path(_unescape(fields[4]))


def _unescape(text: str) -> str:
    """Decode a path of mountinfo, where spaces and other separators are octal numbers."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)


def _read_group(folder: Path) -> float | None:
    words = " ".join(_read_lines(folder / "cpu.max")).split()
    if not words:
        files = (folder / "cpu.cfs_quota_us", folder / "cpu.cfs_period_us")
        words = " ".join(line for file in files for line in _read_lines(file)).split()
    # "max 100000" and "-1 100000" mean that there is no quota.
    if len(words) != 2 or not all(word.isdecimal() and int(word) for word in words):
        return None
    return int(words[0]) / int(words[1])


def _read_lines(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
