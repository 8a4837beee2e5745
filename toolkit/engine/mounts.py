"""The cache mounts in which Bazel keeps what it compiled: BuildKit holds them, and no image or container does.

``docker image rm`` and ``docker system df`` by image do not reach them, and each may have tens of gigabytes.
"""

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from toolkit import naming
from toolkit.console import Console

_SECONDS = 120
_RECORD = re.compile(r"^ID:\s+", re.MULTILINE)
_ID = re.compile(r"\S+")
_NAME = re.compile(rf'with id "/?{re.escape(naming.BAZEL_MOUNT)}([^"/]+)"')
_SIZE = re.compile(r"^Size:\s+(\S+)", re.MULTILINE)
_FREE = re.compile(r"^Reclaimable:\s+true", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class CacheMount:
    """One cache of Bazel.

    Attributes:
        id: of BuildKit's record.
        name: what ``--cache`` calls it.
        size: as buildx writes it, such as ``31.2GB``.
        used: whether a build has it open.
    """

    id: str
    name: str
    size: str
    used: bool


def find() -> list[CacheMount]:
    """Return the caches of Bazel that the current builder holds, by name; none where there is no builder."""
    said = _run("du", "--verbose", "--filter", "type=exec.cachemount")
    return sorted(_read(said.stdout if said else ""), key=lambda mount: (mount.name, mount.id))


def remove(mount: CacheMount) -> str:
    """Remove one; returns why it is still there, or nothing. What another build has open stays."""
    said = _run("prune", "--force", "--filter", f"id={mount.id}")
    if mount.id not in {each.id for each in find()}:
        return ""
    words = (said.stderr if said else "").strip().splitlines()
    return words[-1] if words else "a build is using it"


@contextmanager
def used_once(name: str, console: Console) -> Iterator[None]:
    """Remove the caches of one name when the block ends, however it ends; one that stays is named."""
    try:
        yield
    finally:
        for mount in find():
            if mount.name == name and (reason := remove(mount)):
                console.say(f"Bazel's cache {name} ({mount.size}) stays: {reason}; `toolkit clean` removes it")


def _run(*arguments: str) -> "subprocess.CompletedProcess[str] | None":
    try:
        return subprocess.run(
            ["docker", "buildx", *arguments], capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None


def _read(said: str) -> list[CacheMount]:
    found = []
    for record in _RECORD.split(said)[1:]:
        identity, name, size = _ID.match(record), _NAME.search(record), _SIZE.search(record)
        if identity and name:
            used = _FREE.search(record) is None
            found.append(CacheMount(id=identity[0], name=name[1], size=size[1] if size else "?", used=used))
    return found
