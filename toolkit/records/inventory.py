"""Lists what the toolkit made on this machine: artifacts in folders, what is in the engine, and native kernels.

Records alone are read, so that a thousand runs take a second. `toolkit verify` compares them with the files.
"""

import time
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from toolkit import records
from toolkit.base import files, manifest, naming
from toolkit.records import Artifact
from train.system.output import inline

if TYPE_CHECKING:
    import docker

    from toolkit.records.clean import Leftover

_UNITS: Final = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))
IN_ENGINE: Final = ("container", "image", "volume", "network", "cache")


@dataclass(frozen=True, kw_only=True)
class Item:
    kind: str  # one of `list_kinds`
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
        return next((f"{seconds // unit} {name}" for unit, name in _UNITS if seconds >= unit), "0 s")

    @property
    def size(self) -> str:
        return files.format_size(self.bytes)


def list_kinds() -> tuple[str, ...]:
    """Return all kinds of items: those of artifacts in folders, and what else the toolkit makes."""
    return (*(kind.noun for kind in records.KINDS if kind.home), *IN_ENGINE, "kernels")


def find(
    dist: Path,
    runs: Path,
    state: Path,
    client: "docker.DockerClient | None",
    kinds: Collection[str] = (),
) -> list[Item]:
    """Return the items of some kinds, or of all, by kind and then by name.

    ``client``: None leaves out what is in the engine.
    """
    kinds = kinds or list_kinds()
    wanted = [kind for kind in records.KINDS if kind.home and kind.noun in kinds]
    places = {"dist": dist, "runs": runs, "state": state}
    made = [
        (artifact, record)
        for home, place in places.items()
        if any(kind.home == home for kind in wanted)
        for artifact, record in records.list_folders(place, state)
        if artifact.home == home
    ]
    leftovers: list[Leftover] = []
    if any(kind.home == "state" for kind in wanted) or set(kinds) - {kind.noun for kind in wanted}:
        from toolkit.records import clean  # loads the engine's SDK, which is slow

        caches = clean.find_caches(with_cache=False) if client else []
        leftovers = [*clean.find(client, state), *caches, *clean.find_kernels()]
    removed = {item.name for item in leftovers if item.kind == "folder" and not (item.left or item.used)}
    items = [_describe_artifact(artifact, record, removed) for artifact, record in made]
    items += [_describe_leftover(item) for item in leftovers if item.kind != "folder"]
    return [item for item in items if item.kind in kinds]


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


def _describe_artifact(artifact: Artifact, record: object, removed: Collection[str]) -> Item:
    """Return a thing in a folder. ``removed``: the folders that `toolkit clean` removes."""
    folder = artifact.folder
    return Item(
        kind=artifact.noun,
        name=str(folder),
        state=artifact.summarize(record),
        bytes=files.measure(folder),
        changed=_read_time(folder),
        cleaned=str(folder) in removed,
    )


def _describe_leftover(item: "Leftover") -> Item:
    """Return a thing in the engine, or the native kernels, as `toolkit clean` finds it."""
    name, state, changed = item.name, item.used, None
    match item.kind:
        case "image":
            version = item.handle.labels.get(f"{naming.LABEL_PREFIX}.tensorflow")
            state = f"TensorFlow {inline(version)}" if version else "no TensorFlow"
        case "cache":
            name, state = item.handle.name, "in use" if item.used else ""
        case "kernels":
            name, changed = str(item.handle), _read_time(item.handle)
    cleaned = not (item.left or item.used)
    return Item(
        kind=item.kind, name=name, state=state, bytes=item.bytes, changed=changed, cleaned=cleaned, owner=item.owner
    )


def _read_time(folder: Path) -> float | None:
    for path in (folder / manifest.FILE, folder):
        with suppress(OSError):
            return path.stat().st_mtime
    return None
