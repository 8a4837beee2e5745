"""The run folder: made, locked against a second process, and given its ``config.yaml``."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

from train.config import TrainConfig
from train.errors import PreflightError
from train.files import sweep, write_text


@contextmanager
def opened(config: TrainConfig) -> Iterator[Path]:
    """The folder of a run, held by this process alone while the block runs.

    Raises:
        PreflightError: the folder cannot be written, or another process trains in it.
    """
    folder = config.run_dir
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / ".lock").open("a")
    except OSError as error:
        raise PreflightError(
            f"cannot write to {folder}", why=error.strerror or str(error), remedy="choose another folder with --out"
        ) from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise PreflightError(
                f"another process trains in {folder}", remedy="wait for it, or change an option, such as --seed"
            ) from error
        for place in (folder, folder / "checkpoints"):
            sweep(place)
        write_text(folder / "config.yaml", yaml.safe_dump(config.as_dict(), sort_keys=False))
        yield folder
