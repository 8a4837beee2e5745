"""Lists what the toolkit made on this machine: wheels, runs, environments, images, Bazel's caches, native kernels.

Records alone are read, so that a thousand runs take less than a second. `toolkit verify` compares them with the files.
"""

import os
import re
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from toolkit import files, manifest, signing
from toolkit.errors import PreflightError
from train.record.metrics import CSV, read_epochs

if TYPE_CHECKING:
    import docker

UNITS: Final = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))
KINDS: Final = ("wheel", "graft", "run", "environment", "image", "cache", "kernels")


@dataclass(frozen=True, kw_only=True)
class Item:
    kind: str  # one of KINDS
    name: str
    state: str  # what its record says of it, or that it has none
    bytes: int | None = None
    changed: float | None = None  # seconds since 1970
    cleaned: bool = False  # whether `toolkit clean` removes it

    @property
    def age(self) -> str:
        if self.changed is None:
            return ""
        seconds = max(0, int(time.time() - self.changed))
        return next((f"{seconds // unit} {name}" for unit, name in UNITS if seconds >= unit), "0 s")

    @property
    def size(self) -> str:
        if self.bytes is None:
            return ""
        return f"{self.bytes / 1e9:.1f} GB" if self.bytes >= 1e9 else f"{self.bytes / 1e6:.1f} MB"


def find(
    dist: Path,
    runs: Path,
    state: Path,
    client: "docker.DockerClient | None",
    kinds: Collection[str] = KINDS,
) -> list[Item]:
    """Return the items of some kinds, by kind and then by name. ``client``: None leaves out what is in the engine."""
    wheels = _find_wheels(dist) if {"wheel", "graft"} & set(kinds) else ()
    found = [*wheels, *(_find_runs(runs) if "run" in kinds else ())]
    if set(kinds) - {"wheel", "graft", "run"}:
        from toolkit import clean  # loads the engine's SDK, which takes longer than a thousand runs

        others = [*_find_environments(state), *(_find_in_engine(client) if client else ())]
        others += [
            Item(kind="kernels", name=str(item.handle), state="", **_measure(item.handle))
            for item in clean.find_kernels()
        ]
        removed = {item.name for item in clean.find(client, state)}
        found += [replace(item, cleaned=item.name in removed) for item in others]
    return [item for item in found if item.kind in kinds]


def render(items: Iterable[Item]) -> str:
    """Return a table. Sizes and ages end below each other."""
    rows = [("kind", "name", "size", "age", "cleaned", "state")]
    rows += [(item.kind, item.name, item.size, item.age, "yes" if item.cleaned else "", item.state) for item in items]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [
            cell.rjust(width) if at in {2, 3} else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def _find_wheels(dist: Path) -> Iterator[Item]:
    for folder in _list(dist):
        record = manifest.read(folder)
        if record is None or record.kind != "wheel":
            continue
        spec: Mapping[str, Any] = record.facts.get("lock", {}).get("spec", {})
        words = [f"TensorFlow {spec.get('tensorflow', '?')}", f"CUDA {spec.get('cuda', '?')}"]
        words += [str(spec.get("capabilities", "?")), *(["signed"] if signing.locate(folder).exists() else [])]
        kind = "graft" if "graft" in record.facts else "wheel"
        yield Item(kind=kind, name=str(folder), state=", ".join(words), **_measure(folder))


def _find_runs(runs: Path) -> Iterator[Item]:
    for folder in _list(runs):
        if (folder / "config.yaml").exists():
            yield Item(kind="run", name=str(folder), state=_describe_run(folder), **_measure(folder))


def _describe_run(folder: Path) -> str:
    value = files.read_json(folder / manifest.FILE)
    match value:
        case {"status": "complete", "result": {"test_accuracy": float(accuracy), "epochs": int(epochs)}}:
            return f"complete: test accuracy {accuracy:.2%} after {epochs} epochs"
    done = "no epoch"
    with suppress(OSError):
        if records := read_epochs(folder / CSV):
            done = f"epoch {records[-1].epoch}, test accuracy {records[-1].test_accuracy:.2%}"
    try:
        running = files.is_locked(folder / ".lock")
    except PreflightError:  # nothing tells whether it runs, where there are no locks
        return f"not complete: {done}"
    return f"{'running' if running else 'stopped'}: {done}"


def _find_environments(state: Path) -> Iterator[Item]:
    for folder in _list(state):
        record = manifest.read(folder)
        if record and record.kind == "environment":
            facts = record.facts
            said = f"Python {facts.get('python', '?')}, set {facts.get('requirements', '?')}"
            yield Item(kind="environment", name=str(folder), state=said, **_measure(folder))


def _find_in_engine(client: "docker.DockerClient") -> Iterator[Item]:
    from toolkit import naming
    from toolkit.engine import buildx
    from toolkit.engine.client import translating_errors

    with translating_errors("listing images"):
        images = client.images.list(filters={"label": f"{naming.OWNER_LABEL}=toolkit"})
    for image in images:
        words = [f"TensorFlow {found}" for found in [image.labels.get(f"{naming.LABEL_PREFIX}.tensorflow")] if found]
        said = ", ".join(words) or "no TensorFlow"
        for tag in image.tags:
            yield Item(kind="image", name=tag, state=said, bytes=int(image.attrs["Size"]))
    for mount in buildx.find_caches():
        said = "in use" if mount.used else ""
        yield Item(kind="cache", name=mount.name, state=said, bytes=_parse_size(mount.size))


def _parse_size(text: str) -> int | None:
    """Return the bytes that BuildKit writes as 31.2GB."""
    match = re.fullmatch(r"([0-9.]+)([kMGT]?)B", text)
    return round(float(match[1]) * 1000 ** " kMGT".index(match[2] or " ")) if match else None


def _list(folder: Path) -> list[Path]:
    try:
        return sorted(Path(entry.path) for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False))
    except OSError:
        return []


def _measure(folder: Path) -> dict[str, Any]:
    """Return the bytes of a folder's files, of checkpoints too, and the time of its record."""
    return {"bytes": _sum_sizes(folder), "changed": _read_time(folder)}


def _sum_sizes(folder: str | Path) -> int:
    """Return the bytes of the files in a folder and below. What cannot be read counts nothing."""
    size = 0
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            with suppress(OSError):
                below = entry.is_dir(follow_symlinks=False)
                size += _sum_sizes(entry.path) if below else entry.stat(follow_symlinks=False).st_size
    return size


def _read_time(folder: Path) -> float | None:
    for path in (folder / manifest.FILE, folder):
        with suppress(OSError):
            return path.stat().st_mtime
    return None
