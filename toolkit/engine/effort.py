"""What building TensorFlow from source takes on this machine.

No whole source build has been measured: ``effort.yaml`` has the files that were counted, and the hours that follow.
conda-forge allowed its builds 12 and later 18 hours on 4 cores. The largest of 454 files took 660 MB, but 16 GB were
too little for 16 jobs (tensorflow#41480), so each job is given more.
"""

import os
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path

from toolkit.base.findings import Finding
from toolkit.versions.table import read_yaml
from train.cores import count_cores

JOB_BYTES = 2 << 30
"""Memory that one compile job may take."""

MEMORY_BYTES = {"least": 16 << 30, "good": 32 << 30}
DISK_BYTES = {"least": 40 << 30, "good": 80 << 30}
_EFFORT = Path(__file__).with_name("effort.yaml")

FEW_CORES = 4
"""With fewer, a build takes most of a day."""


@dataclass(frozen=True, kw_only=True)
class Hours:
    """What a build takes. The error bars are those of an estimate, and not of measurements."""

    likely: float
    least: float
    most: float
    files: int  # that are compiled, as they were counted

    def describe(self) -> str:
        likely, least, most = (max(1, round(hours)) for hours in (self.likely, self.least, self.most))
        return f"about {likely} h ({least} to {most})"


def count_hours(capabilities: int, jobs: int) -> Hours:
    """Return the hours of a build. ``capabilities``: how many compute capabilities it is for; 0: for processors."""
    effort = read_yaml(_EFFORT.read_text(encoding="utf-8"))
    device = "cuda" if capabilities else "cpu"
    counted = effort["counted"][device]
    more = max(0, capabilities - 1) * counted.get("cuda_files", 0) * effort["measured"]["cuda_file_seconds"] / 3600
    likely, least, most = ((hours + more) / jobs for hours in effort["hours"][device])
    return Hours(likely=likely, least=least, most=most, files=counted["files"] + counted.get("cuda_files", 0))


def estimate_build(capabilities: int = 1) -> Finding:
    """Return what a build takes on this machine. ``capabilities``: as :func:`count_hours` has them."""
    # Of the machine, not of this process: the build runs in the engine.
    total, cores = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), count_cores()
    jobs = max(1, min(cores, total // JOB_BYTES))
    hours = count_hours(capabilities, jobs)
    free = shutil.disk_usage(_find_engine_root()).free
    lacking = [
        f"{name} {value / 2**30:.0f} GiB, {limits['least'] / 2**30:.0f} are needed"
        for name, value, limits in (("memory", total, MEMORY_BYTES), ("disk", free, DISK_BYTES))
        if value < limits["least"]
    ]
    tight = total < MEMORY_BYTES["good"] or free < DISK_BYTES["good"] or cores < FEW_CORES
    enough = not (lacking or tight)
    return Finding(
        id="source-build",
        state="ok" if enough else "fail",
        advisory=True,
        evidence=f"TensorFlow from source: {jobs} jobs, {hours.describe()}, by {hours.files:,} counted files"
        + "".join(f"; {text}" for text in lacking),
        remedy="" if enough else "build on a larger host, or with --remote-cache",
        facts={
            "jobs": jobs,
            **asdict(hours),
            "hours": hours.describe(),
            "memory_bytes": total,
            "free_bytes": free,
            "cores": cores,
        },
    )


def _find_engine_root() -> Path:
    root = Path("/var/lib/docker")
    return root if root.is_dir() else Path("/")
