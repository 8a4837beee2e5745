"""Checks the machine itself: Python, disk, memory, folders, and whether TensorFlow could be built here."""

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from toolkit.base.errors import ToolkitError
from toolkit.base.findings import Finding
from toolkit.doctor.reading import ROOT, find_system
from toolkit.engine import effort
from toolkit.engine.host import NEEDED_BYTES
from toolkit.engine.user import find_existing
from toolkit.versions.rules import choose_versions
from toolkit.versions.settings import Settings
from toolkit.versions.table import load_table
from train.cores import count_cores
from train.system import memory


def check(settings: Settings, root: Path = ROOT) -> Iterator[Finding]:
    in_wsl = find_system(root) == "wsl2"
    yield from _check_host(settings)
    yield from _check_disk(settings)
    yield from _check_memory(in_wsl=in_wsl)
    yield from _check_outputs(settings)
    if in_wsl:
        yield from _check_windows_folders(settings, root)


def _check_host(settings: Settings) -> Iterator[Finding]:
    running = f"{sys.version_info.major}.{sys.version_info.minor}"
    if running == settings.python or shutil.which(f"python{settings.python}"):
        yield Finding(id="python", state="ok", evidence=f"Python {settings.python} for the host engine")
    else:
        yield Finding(
            id="python",
            state="fail",
            advisory=settings.engine != "host",
            evidence=f"Python {settings.python} is not on this machine: the host engine cannot work",
            remedy=f"install python{settings.python}, or use --engine docker",
        )


def _check_disk(settings: Settings) -> Iterator[Finding]:
    folder = find_existing(Path(settings.state))
    free, needed = shutil.disk_usage(folder).free, NEEDED_BYTES["cuda" if settings.cuda else "cpu"]
    yield Finding(
        id="disk",
        state="ok" if free >= needed else "fail",
        evidence=f"{free / 2**30:.0f} GiB free at {folder}, {needed / 2**30:.0f} GiB needed",
        remedy="" if free >= needed else "free space, or set TOOLKIT_STATE to a folder on a larger disk",
        facts={"free_bytes": free, "needed_bytes": needed},
    )


def _check_memory(*, in_wsl: bool) -> Iterator[Finding]:
    total = memory.read_total()  # of this machine; a build runs in that of the engine
    cores = count_cores()
    enough = total >= 4 << 30
    given = " that WSL 2 has; Windows keeps the rest, as .wslconfig says" if in_wsl else ""
    remedy = "choose a smaller --batch-size, and --memory shared"
    if in_wsl:
        remedy += "; or raise `memory=` below [wsl2] in Windows' file .wslconfig, and run `wsl --shutdown`"
    yield Finding(
        id="memory",
        state="ok" if enough else "fail",
        advisory=True,
        evidence=f"{total / 2**30:.0f} GiB of memory, {cores} cores{given}",
        remedy="" if enough else remedy,
        facts={"bytes": total, "cores": cores},
    )


def _check_outputs(settings: Settings) -> Iterator[Finding]:
    for name in ("runs", "data"):
        folder = Path(getattr(settings, name))
        place = find_existing(folder)
        writable = place.is_dir() and os.access(place, os.W_OK | os.X_OK)
        yield Finding(
            id=f"writable-{name}",
            state="ok" if writable else "fail",
            evidence=f"{folder} can {'' if writable else 'not '}be written",
            remedy="" if writable else f"change the owner of {place}, or set TOOLKIT_{name.upper()} to another folder",
        )


def _check_windows_folders(settings: Settings, root: Path) -> Iterator[Finding]:
    """Warn of folders on Windows' disks, which WSL mounts at /mnt/c and reads by a file server."""
    mounts = [line.split(" ") for line in (root / "proc/mounts").read_text().splitlines()]
    windows = [Path(words[1]) for words in mounts if len(words) > 2 and words[2] in {"9p", "drvfs"}]
    for name in ("state", "runs", "data"):
        folder = Path(getattr(settings, name)).resolve()
        disk = next((place for place in windows if place in folder.parents or place == folder), None)
        if disk and disk != Path("/"):
            yield Finding(
                id=f"windows-{name}",
                state="fail",
                advisory=True,
                evidence=f"{folder} is on Windows' disk {disk}: WSL reads it slowly, and names there ignore the case",
                remedy=f"work in a folder of Linux, such as one in ~, or set TOOLKIT_{name.upper()} to one",
            )


def check_build(settings: Settings) -> Iterator[Finding]:
    """Check whether the versions asked for can be built here. Failures are warnings: only source builds need it."""
    if settings.cuda:
        yield _check_versions(settings)
    yield effort.estimate_build(0 if settings.for_processor else 1)


def _check_versions(settings: Settings) -> Finding:
    asked = settings.versions.describe()
    try:
        choose_versions(load_table(), settings.versions)
    except ToolkitError as error:
        return Finding(
            id="versions", state="fail", advisory=True, evidence=f"{asked}: {error.what}", remedy=error.remedy
        )
    return Finding(id="versions", state="ok", evidence=f"{asked} can be built")
