"""Lists what the toolkit made on this machine: wheels, runs, environments, images, Bazel's caches, native kernels.

Records alone are read, so that a thousand runs take less than a second. `toolkit verify` compares them with the files.
"""

import os
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from toolkit import files, manifest, signing
from toolkit.errors import PreflightError
from train.record.metrics import CSV, read_epochs

if TYPE_CHECKING:
    import docker

    from toolkit.clean import Leftover

UNITS: Final = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))
IN_ENGINE: Final = ("container", "image", "volume", "network", "cache")
KINDS: Final = ("wheel", "graft", "run", "environment", *IN_ENGINE, "kernels")


@dataclass(frozen=True, kw_only=True)
class Item:
    kind: str  # one of KINDS
    name: str
    state: str  # what its record says of it, or that it has none
    bytes: int | None = None
    changed: float | None = None  # seconds since 1970
    cleaned: bool = False  # whether `toolkit clean` removes it
    owner: str = ""  # whose it is; empty if it is of this folder

    @property
    def age(self) -> str:
        if self.changed is None:
            return ""
        seconds = max(0, int(time.time() - self.changed))
        return next((f"{seconds // unit} {name}" for unit, name in UNITS if seconds >= unit), "0 s")

    @property
    def size(self) -> str:
        return files.format_size(self.bytes)


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

        made = clean.find(client, state)
        removed = {item.name for item in made if item.kind == "folder" and not (item.left or item.used)}
        found += _find_environments(state, removed)
        caches = clean.find_caches(with_cache=False) if client else []
        found += [_describe(item) for item in [*made, *caches, *clean.find_kernels()] if item.kind != "folder"]
    return [item for item in found if item.kind in kinds]


def render(items: Iterable[Item]) -> str:
    """Return a table. Sizes and ages end below each other."""
    rows = [("kind", "name", "size", "age", "cleaned", "owner", "state")]
    for item in items:
        cleaned = "yes" if item.cleaned else ""
        rows.append((item.kind, item.name, item.size, item.age, cleaned, item.owner, item.state))
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


def _find_environments(state: Path, removed: Collection[str]) -> Iterator[Item]:
    for folder in _list(state):
        record = manifest.read(folder)
        if record and record.kind == "environment":
            facts = record.facts
            said = f"Python {facts.get('python', '?')}, set {facts.get('requirements', '?')}"
            cleaned = str(folder) in removed
            yield Item(kind="environment", name=str(folder), state=said, cleaned=cleaned, **_measure(folder))


def _describe(item: "Leftover") -> Item:
    """Return a thing in the engine, or the native kernels, as `toolkit clean` finds it."""
    from toolkit import naming

    name, said, changed = item.name, item.used, None
    match item.kind:
        case "image":
            version = item.handle.labels.get(f"{naming.LABEL_PREFIX}.tensorflow")
            said = f"TensorFlow {version}" if version else "no TensorFlow"
        case "cache":
            name, said = item.handle.name, "in use" if item.used else ""
        case "kernels":
            name, changed = str(item.handle), _read_time(item.handle)
    cleaned = not (item.left or item.used)
    return Item(
        kind=item.kind, name=name, state=said, bytes=item.bytes, changed=changed, cleaned=cleaned, owner=item.owner
    )


def _list(folder: Path) -> list[Path]:
    try:
        return sorted(Path(entry.path) for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False))
    except OSError:
        return []


def _measure(folder: Path) -> dict[str, Any]:
    """Return the bytes of a folder's files, of checkpoints too, and the time of its record."""
    return {"bytes": files.measure(folder), "changed": _read_time(folder)}


def _read_time(folder: Path) -> float | None:
    for path in (folder / manifest.FILE, folder):
        with suppress(OSError):
            return path.stat().st_mtime
    return None
