"""The machine itself: Python, disk, memory, folders, certificates."""

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from toolkit.engine.host import NEEDED_BYTES
from toolkit.findings import Finding
from toolkit.settings import Settings
from train.cores import count_cores


def check(settings: Settings) -> Iterator[Finding]:
    """What training and the checks need, wherever they run."""
    yield from _check_host(settings)
    yield from _check_disk(settings)
    yield from _check_memory()
    yield from _check_outputs(settings)
    yield from _check_certificates(settings)


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
    folder = _find_existing(Path(settings.state))
    free, needed = shutil.disk_usage(folder).free, NEEDED_BYTES["cuda" if settings.cuda else "cpu"]
    yield Finding(
        id="disk",
        state="ok" if free >= needed else "fail",
        evidence=f"{free / 2**30:.0f} GiB free at {folder}, {needed / 2**30:.0f} GiB needed",
        remedy="" if free >= needed else "free space, or set TOOLKIT_STATE to a folder on a larger disk",
        facts={"free_bytes": free, "needed_bytes": needed},
    )


def _check_memory() -> Iterator[Finding]:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    cores = count_cores()
    enough = total >= 4 << 30
    yield Finding(
        id="memory",
        state="ok" if enough else "fail",
        advisory=True,
        evidence=f"{total / 2**30:.0f} GiB of memory, {cores} cores",
        remedy="" if enough else "choose a smaller --batch-size, and --memory shared",
        facts={"bytes": total, "cores": cores},
    )


def _check_outputs(settings: Settings) -> Iterator[Finding]:
    for name in ("runs", "data"):
        folder = Path(getattr(settings, name))
        place = _find_existing(folder)
        writable = place.is_dir() and os.access(place, os.W_OK | os.X_OK)
        yield Finding(
            id=f"writable-{name}",
            state="ok" if writable else "fail",
            evidence=f"{folder} can {'' if writable else 'not '}be written",
            remedy="" if writable else f"change the owner of {place}, or set TOOLKIT_{name.upper()} to another folder",
        )


def _find_existing(folder: Path) -> Path:
    """The folder itself, or the nearest above it that exists."""
    folder = folder.absolute()
    while not folder.exists():
        folder = folder.parent
    return folder


def _check_certificates(settings: Settings) -> Iterator[Finding]:
    if settings.ca_bundle:
        source = settings.sources["ca_bundle"]
        yield Finding(
            id="ca-bundle", state="ok", evidence=f"extra certificate authorities: {settings.ca_bundle} (from {source})"
        )
