"""Reads the memory that this process may use: the machine's, or less where a container or a scheduler limits it.

A scheduler such as Slurm limits the group of a job, which lies below others and is not at the root of the hierarchy.
"""

import contextlib
import ctypes
import re
import resource
from pathlib import Path
from typing import Final

from train.cores import PROC, find_groups

FILES: Final = (
    ("memory.max", "memory.current"),  # admin-guide/cgroup-v2
    ("memory.limit_in_bytes", "memory.usage_in_bytes"),  # admin-guide/cgroup-v1/memory
)
"""Limit and use of a group, in bytes."""


def read_total(meminfo: Path = Path("/proc/meminfo"), proc: Path = PROC) -> int:
    """Return the bytes of memory of the machine, or of the group of this process if that is less."""
    return min([_read_machine(meminfo, "MemTotal"), *(limit for limit, _ in _read_groups(proc))])


def read_free(meminfo: Path = Path("/proc/meminfo"), proc: Path = PROC) -> int:
    """Return the bytes that are free: of the machine, or of the group of this process if that is less."""
    return min([_read_machine(meminfo, "MemAvailable"), *(max(0, limit - used) for limit, used in _read_groups(proc))])


def read_peak() -> int:
    """Return the most bytes of memory that this process has had at once."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def read_resident() -> int:
    """Return the bytes of memory that this process has now."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * resource.getpagesize()


def return_free() -> None:
    """Give memory that was freed back to the machine. The C library keeps most of it otherwise."""
    with contextlib.suppress(AttributeError):  # the C library musl has no such function
        ctypes.CDLL(None).malloc_trim(0)


def keep_freed() -> None:
    """Let the C library keep what is freed for what comes next, in one heap for all threads.

    glibc otherwise returns each large block at once, and the kernel clears its pages before the next step has them
    again. Call this before other threads take memory (mallopt(3)).
    """
    heaps, mapped_from, returned_from = -8, -3, -1  # M_ARENA_MAX, M_MMAP_THRESHOLD and M_TRIM_THRESHOLD
    with contextlib.suppress(AttributeError):
        for name, value in ((heaps, 1), (mapped_from, 1 << 30), (returned_from, 2**31 - 1)):
            ctypes.CDLL(None).mallopt(name, value)


def _read_machine(meminfo: Path, name: str) -> int:
    match = re.search(rf"^{name}:\s+(\d+) kB", meminfo.read_text(encoding="ascii"), re.MULTILINE)
    return int(match[1]) << 10 if match else 0


def _read_groups(proc: Path) -> list[tuple[int, int]]:
    limits = []
    for folder in find_groups("memory", proc):
        for names in FILES:
            try:
                limit, used = (int((folder / name).read_text(encoding="ascii")) for name in names)
            except (OSError, ValueError):  # no such file, or "max"
                continue
            limits.append((limit, used))
    return limits
