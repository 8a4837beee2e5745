"""What building TensorFlow from source would take here. An estimate from public reports, not measured by this project:
conda-forge gives it 12 to 18 hours on 4 cores, and 16 GB with 16 jobs have run out (tensorflow#41480).
"""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from toolkit.errors import ToolkitError
from toolkit.findings import Finding
from toolkit.settings import Settings
from toolkit.versions import load_table, resolve
from train.cores import count_cores

JOB_BYTES = 2 << 30
"""Memory that one compile job may take."""

MEMORY_BYTES = {"least": 16 << 30, "good": 32 << 30}
DISK_BYTES = {"least": 40 << 30, "good": 80 << 30}
HOURS = ((32, "about 1 to 2"), (16, "about 2 to 4"), (8, "about 5 to 8"), (4, "about 10 to 18"))
"""Jobs at once, a core each, and hours for one compute capability."""


def check(settings: Settings) -> Iterator[Finding]:
    """Check whether the versions asked for can be built, and with what; never a failure, since only builds need it."""
    if settings.cuda:
        yield _check_versions(settings)
    yield check_machine()


def _check_versions(settings: Settings) -> Finding:
    asked = f"TensorFlow {settings.tensorflow} with CUDA {settings.cuda} and cuDNN {settings.cudnn}"
    try:
        resolve(
            load_table(),
            tensorflow=settings.tensorflow,
            python=settings.python,
            cuda=settings.cuda,
            cudnn=settings.cudnn,
        )
    except ToolkitError as error:
        return Finding(
            id="versions", state="fail", advisory=True, evidence=f"{asked}: {error.what}", remedy=error.remedy
        )
    return Finding(id="versions", state="ok", evidence=f"{asked} can be built")


def check_machine() -> Finding:
    """Return the jobs, memory, disk and hours of a source build."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    cores = count_cores()
    jobs = max(1, min(cores, memory // JOB_BYTES))
    hours = next((text for least, text in HOURS if jobs >= least), "more than 18")
    free = shutil.disk_usage(_find_engine_root()).free
    lacking = [
        f"{name} {value / 2**30:.0f} GiB, {limits['least'] / 2**30:.0f} are needed"
        for name, value, limits in (("memory", memory, MEMORY_BYTES), ("disk", free, DISK_BYTES))
        if value < limits["least"]
    ]
    tight = memory < MEMORY_BYTES["good"] or free < DISK_BYTES["good"] or cores < HOURS[-1][0]
    enough = not (lacking or tight)
    return Finding(
        id="source-build",
        state="ok" if enough else "fail",
        advisory=True,
        evidence=f"TensorFlow from source: {jobs} jobs, {hours} hours" + "".join(f"; {text}" for text in lacking),
        remedy="" if enough else "build on a larger host, or with --remote-cache",
        facts={"jobs": jobs, "hours": hours, "memory_bytes": memory, "free_bytes": free, "cores": cores},
    )


def _find_engine_root() -> Path:
    """Return where the engine keeps its layers and caches, as far as this process can see it."""
    root = Path("/var/lib/docker")
    return root if root.is_dir() else Path("/")
