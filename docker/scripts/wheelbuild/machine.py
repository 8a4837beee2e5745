import re
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")


def read_memory(meminfo: Path = Path("/proc/meminfo"), cgroup: Path = CGROUP) -> int:
    """Memory in MiB: the machine's, or the container's limit where that is lower."""
    match = re.search(r"MemTotal:\s+(\d+) kB", meminfo.read_text())
    total = int(match[1]) * 1024 if match else 0
    limits = [_read_number(cgroup / "memory.max"), _read_number(cgroup / "memory" / "memory.limit_in_bytes")]
    return min([total, *(limit for limit in limits if limit is not None)]) >> 20


def read_peak(cgroup: Path = CGROUP) -> int | None:
    """Highest memory use of the container in MiB, page cache included; None where the kernel does not say."""
    for name in ("memory.peak", "memory/memory.max_usage_in_bytes"):
        peak = _read_number(cgroup / name)
        if peak is not None:
            return peak >> 20
    return None


def count_kills(cgroup: Path = CGROUP) -> int:
    for name in ("memory.events", "memory/memory.oom_control"):
        try:
            match = re.search(r"^oom_kill (\d+)$", (cgroup / name).read_text(), re.MULTILINE)
        except OSError:
            continue
        if match:
            return int(match[1])
    return 0


def _read_number(file: Path) -> int | None:
    try:
        text = file.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdecimal() else None
