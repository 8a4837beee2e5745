"""Checkpoints: written whole, checked by digest, the newest good one wins.

A checkpoint is two files: ``step-N.npz`` with the arrays, and then ``step-N.json`` with their digest and what the loop
needs to go on. The second file makes the first one count, so a process may die at any moment between.
"""

import contextlib
import hashlib
import io
import json
import zipfile
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from train.files import replacing, write_text

Values = dict[str, NDArray[np.generic]]


@dataclass(frozen=True)
class Position:
    """Where a run stands: what is needed to go on besides the arrays.

    Attributes:
        step: steps done.
        seconds: time spent in steps, but for the first step of each process, which makes the graph.
        epoch_seconds, loss_sum, correct, seen: sums over the epoch that is under way.
        environment: what the bits depend on besides the configuration, such as threads and the data's digest.
        resumed: steps after which other processes had stopped and this or another one went on.
    """

    step: int = 0
    seconds: float = 0.0
    epoch_seconds: float = 0.0
    loss_sum: float = 0.0
    correct: int = 0
    seen: int = 0
    environment: dict[str, Any] = field(default_factory=dict)
    resumed: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint read back and found good."""

    values: Values
    position: Position


def save(folder: Path, values: Values, position: Position, *, keep: int) -> Path:
    """Write a checkpoint, then remove all but the newest `keep`; returns the path of its arrays.

    Raises:
        PreflightError: the disk is full or not writable; older checkpoints are untouched.
    """
    buffer = io.BytesIO()
    # The names of variables hold slashes, which would be folders in the archive: store them apart from the arrays.
    names = sorted(values)
    np.savez(buffer, **{f"{index:05d}": values[name] for index, name in enumerate(names)})
    content = buffer.getbuffer()
    path = folder / f"step-{position.step:08d}.npz"
    with replacing(path) as file:
        file.write(content)
    facts = {"names": names, "position": asdict(position)}
    write_text(path.with_suffix(".json"), json.dumps({"sha256": _digest(facts, content), **facts}))
    for old in _list(folder)[keep:]:
        old.unlink(missing_ok=True)
        old.with_suffix(".npz").unlink(missing_ok=True)
    return path


def load(folder: Path) -> tuple[Checkpoint | None, list[str]]:
    """The newest good checkpoint, and what was wrong with each newer one."""
    problems: list[str] = []
    for record in _list(folder):
        try:
            return _read(record), problems
        except _BAD as error:
            problems.append(f"{record.with_suffix('.npz')}: {error or type(error).__name__}")
    return None, problems


def newest(folder: Path) -> Path | None:
    """The arrays of the newest good checkpoint."""
    for record in _list(folder):
        with contextlib.suppress(*_BAD):
            _read(record)
            return record.with_suffix(".npz")
    return None


_BAD = (OSError, ValueError, KeyError, TypeError, zipfile.BadZipFile)


def _list(folder: Path) -> list[Path]:
    """Records of checkpoints, newest first."""
    return sorted(folder.glob("step-*.json"), reverse=True)


def _read(record: Path) -> Checkpoint:
    facts = json.loads(record.read_text(encoding="utf-8"))
    promised = facts.pop("sha256")
    content = record.with_suffix(".npz").read_bytes()
    if _digest(facts, content) != promised:
        raise ValueError("its digest does not match: torn or altered")
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        values = {name: arrays[f"{index:05d}"] for index, name in enumerate(facts["names"])}
    return Checkpoint(values, Position(**facts["position"]))


def _digest(facts: dict[str, Any], content: bytes | memoryview) -> str:
    state = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
    state.update(content)
    return state.hexdigest()
