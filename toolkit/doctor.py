"""Preflight: what this machine can and cannot do, each finding with its remedy.

After cog's ``doctor``: a finding is a fact, a verdict on it, and what to do about it.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from toolkit.engine.venv import NEEDED_BYTES
from toolkit.errors import ToolkitError
from toolkit.settings import Settings

Level = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One fact about this machine.

    Attributes:
        id: stable name.
        level: ``ok``; ``warn``: something asked for will not work, the rest will; ``fail``: nothing will.
        summary: the fact.
        remedy: what to do about it.
        facts: the numbers behind it.
    """

    id: str
    level: Level
    summary: str
    remedy: str = ""
    facts: dict[str, Any] = field(default_factory=dict)


def examine(settings: Settings) -> list[Finding]:
    """All findings, in the order in which they matter."""
    checks: tuple[Callable[[Settings], Iterator[Finding]], ...] = (
        _check_engine,
        _check_host,
        _check_disk,
        _check_memory,
        _check_outputs,
        _check_network,
        _check_gpu,
    )
    return [finding for check in checks for finding in check(settings)]


def _check_engine(settings: Settings) -> Iterator[Finding]:
    from toolkit.engine import base
    from toolkit.engine.client import connect, find_buildx

    try:
        client = connect()
    except ToolkitError as error:
        level: Level = "fail" if settings.engine == "docker" else "warn"
        yield Finding(id="engine", level=level, summary=f"{error.what}: {error.why}", remedy=error.remedy)
        return
    version = client.version()
    summary = f"engine {version['Version']}, API {version['ApiVersion']}"
    yield Finding(id="engine", level="ok", summary=summary, facts={"api": version["ApiVersion"]})
    buildx = find_buildx()
    yield (
        Finding(id="buildx", level="ok", summary=buildx)
        if buildx
        else Finding(
            id="buildx", level="warn", summary="`docker buildx` is missing", remedy="install the docker-buildx plugin"
        )
    )
    try:
        chosen = base.select(client, settings)
        yield Finding(
            id="base-image",
            level="ok",
            summary=chosen.why or f"{chosen.reference} is at hand",
            facts={"reference": chosen.reference, "id": chosen.identity},
        )
    except ToolkitError as error:
        yield Finding(id="base-image", level="warn", summary=error.what, remedy=error.remedy)
    runtimes = client.info().get("Runtimes", {})
    if "nvidia" in runtimes:
        yield Finding(id="nvidia-runtime", level="ok", summary="the engine has the NVIDIA runtime")
    else:
        yield Finding(
            id="nvidia-runtime",
            level="warn",
            summary="the engine has no NVIDIA runtime: containers see no GPU",
            remedy="on a GPU machine, install nvidia-container-toolkit and run `nvidia-ctk runtime configure`",
        )


def _check_host(settings: Settings) -> Iterator[Finding]:
    running = f"{sys.version_info.major}.{sys.version_info.minor}"
    if running == settings.python or shutil.which(f"python{settings.python}"):
        yield Finding(id="python", level="ok", summary=f"Python {settings.python} for the host engine")
    else:
        yield Finding(
            id="python",
            level="fail" if settings.engine == "host" else "warn",
            summary=f"Python {settings.python} is not on this machine: the host engine cannot work",
            remedy=f"install python{settings.python}, or use --engine docker",
        )


def _check_disk(settings: Settings) -> Iterator[Finding]:
    folder = _find_existing(Path(settings.state))
    free, needed = shutil.disk_usage(folder).free, NEEDED_BYTES["cuda" if settings.cuda else "cpu"]
    yield Finding(
        id="disk",
        level="ok" if free >= needed else "fail",
        summary=f"{free / 2**30:.0f} GiB free at {folder}, {needed / 2**30:.0f} GiB needed",
        remedy="" if free >= needed else "free space, or set TOOLKIT_STATE to a folder on a larger disk",
        facts={"free_bytes": free, "needed_bytes": needed},
    )


def _check_memory(_: Settings) -> Iterator[Finding]:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    cores = len(os.sched_getaffinity(0))
    enough = total >= 4 << 30
    yield Finding(
        id="memory",
        level="ok" if enough else "warn",
        summary=f"{total / 2**30:.0f} GiB of memory, {cores} cores",
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
            level="ok" if writable else "fail",
            summary=f"{folder} can {'' if writable else 'not '}be written",
            remedy="" if writable else f"change the owner of {place}, or set TOOLKIT_{name.upper()} to another folder",
        )


def _find_existing(folder: Path) -> Path:
    """The folder itself, or the nearest above it that exists."""
    folder = folder.absolute()
    while not folder.exists():
        folder = folder.parent
    return folder


def _check_network(settings: Settings) -> Iterator[Finding]:
    if settings.ca_bundle:
        source = settings.sources["ca_bundle"]
        yield Finding(
            id="ca-bundle", level="ok", summary=f"extra certificate authorities: {settings.ca_bundle} (from {source})"
        )


def _check_gpu(_: Settings) -> Iterator[Finding]:
    query = ["nvidia-smi", "--query-gpu=name,compute_cap,driver_version", "--format=csv,noheader"]
    try:
        answer = subprocess.run(query, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        yield Finding(
            id="gpu", level="warn", summary="no NVIDIA driver on this machine: everything runs on the CPU", remedy=""
        )
        return
    if answer.returncode:
        yield Finding(
            id="gpu",
            level="warn",
            summary=f"nvidia-smi failed: {(answer.stderr or answer.stdout).strip()[:200]}",
            remedy="the driver and its kernel module disagree, most often after an update: reboot",
        )
        return
    for index, line in enumerate(answer.stdout.strip().splitlines()):
        yield Finding(id=f"gpu-{index}", level="ok", summary=line.strip())
