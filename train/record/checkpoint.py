"""Writes checkpoints atomically, and reads the newest good one.

``step-N.json``, written after the arrays in ``step-N.npz``, holds position and digests. A process that dies between the
two leaves no checkpoint.
"""

import contextlib
import io
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from train.errors import CheckError, IntegrityError, PreflightError
from train.record import reader
from train.system.files import replacing, write_text

Values = dict[str, NDArray[np.generic]]


@dataclass(frozen=True)
class Position:
    """The progress of a run: all that it needs to continue, besides the arrays."""

    step: int = 0
    seconds: float = 0.0  # without the first step of each process, which builds the graph
    epoch_seconds: float = 0.0  # from here to ``seen``: sums over the current epoch
    loss_sum: float = 0.0
    correct: int = 0
    seen: int = 0
    environment: dict[str, Any] = field(default_factory=dict)  # what the bits depend on besides the configuration
    resumed: list[int] = field(default_factory=list)
    config_sha256: str = ""
    continued: int = 0  # the last step of the run that this one goes on from
    best: list[float] = field(default_factory=list)  # the best epoch: its number, validation accuracy and loss


@dataclass(frozen=True)
class Checkpoint:
    values: Values
    position: Position
    path: Path


def save(folder: Path, values: Values, position: Position, *, keep: int) -> Path:
    """Write a checkpoint, and remove older ones but the newest `keep`.

    Checkpoints of later steps are removed too, because `load` found them damaged. Raises a PreflightError if the disk
    is full or not writable; older checkpoints are then untouched.
    """
    buffer = io.BytesIO()
    # Names of variables contain slashes, which would be folders in the archive. The JSON file has them instead.
    names = sorted(values)
    np.savez(buffer, **{f"{index:05d}": values[name] for index, name in enumerate(names)})
    path = folder / f"step-{position.step:08d}.npz"
    # Released here: Python 3.12.1 crashes where its garbage collection finds the view in the traceback of an error.
    with buffer.getbuffer() as content:
        with replacing(path) as file:
            file.write(content)
        facts = {"names": names, "position": asdict(position)}
        write_text(path.with_suffix(".json"), json.dumps({"sha256": reader.digest_state(facts, content), **facts}))
    kept = [record for record in reader.list_checkpoints(folder) if record.stem <= path.stem][:keep]
    for end in ("json", "npz"):  # JSON files first, so that none is left without its arrays
        for old in folder.glob(f"{reader.STEM}.{end}"):
            if old.with_suffix(".json") not in kept:
                old.unlink(missing_ok=True)
    return path


def load(folder: Path) -> tuple[Checkpoint | None, list[str]]:
    """Return the newest good checkpoint or None, and a message for each damaged one."""
    problems: list[str] = []
    for record in reader.list_checkpoints(folder):
        try:
            return _read(record), problems
        except reader.BAD_CHECKPOINT as error:
            if isinstance(error, OSError) and not isinstance(error, FileNotFoundError):
                raise PreflightError(
                    f"cannot read the checkpoint {record.with_suffix('.npz')}",
                    why=error.strerror or str(error),
                    remedy="make it and its .json readable for this user, or remove both to go on from an older one",
                ) from error
            problems.append(f"{record.with_suffix('.npz')}: {error or type(error).__name__}")
    return None, problems


def require_same_run(saved: Checkpoint, config_sha256: str, data_sha256: str | None = None) -> None:
    """Raise an IntegrityError if a checkpoint's configuration is another one, a CheckError if its data is."""
    recorded = saved.position.config_sha256
    if recorded != config_sha256:
        raise IntegrityError(
            f"{saved.path} is a checkpoint of another run",
            why=f"the digest of its configuration is {recorded[:8]}, and that of this run is {config_sha256[:8]}; "
            "the folder of a run ends with these digits",
            remedy=f"remove it and {saved.path.with_suffix('.json').name}; "
            "the same command then goes on from the newest checkpoint of this run",
        )
    written = saved.position.environment["data_sha256"]
    if data_sha256 and data_sha256 != written:
        raise CheckError(
            "the data is not what this run began with",
            why=f"its digest is {data_sha256[:12]} now, and {written[:12]} in {saved.path}",
            remedy="give the same --data-dir again, or begin a new run with another --out",
        )


def newest(folder: Path) -> Path | None:
    for record in reader.list_checkpoints(folder):
        with contextlib.suppress(*reader.BAD_CHECKPOINT):
            _read(record)
            return record.with_suffix(".npz")
    return None


def _read(record: Path) -> Checkpoint:
    saved = reader.read_state(record)
    with np.load(io.BytesIO(saved.content), allow_pickle=False) as arrays:
        values = {name: arrays[f"{index:05d}"] for index, name in enumerate(saved.names)}
    return Checkpoint(values, Position(**saved.position), saved.path)
