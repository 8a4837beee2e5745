"""What the folder of a run tells, finished or not."""

from pathlib import Path
from typing import Any, NamedTuple

import yaml

from train.config import TrainConfig
from train.errors import DataError, UsageError
from train.metrics import EpochRecord, read_epochs


class Run(NamedTuple):
    """A run with its epochs so far, at least one."""

    config: TrainConfig
    epochs: list[EpochRecord]


def read_config(folder: Path) -> TrainConfig:
    """The configuration of a run.

    Raises:
        DataError: the folder is not that of a run.
    """
    try:
        values: dict[str, Any] = yaml.safe_load((folder / "config.yaml").read_text(encoding="utf-8"))
        return TrainConfig.from_dict(values)
    except (OSError, TypeError, AttributeError, ValueError, yaml.YAMLError, UsageError) as error:
        raise DataError(f"{folder} is not the folder of a run", why=str(error)) from error


def read_run(folder: Path) -> Run:
    """Configuration and epochs of a run.

    Raises:
        DataError: the folder is not that of a run, or its first epoch is not over.
    """
    config = read_config(folder)
    try:
        records = read_epochs(folder / "metrics.csv")
    except OSError as error:
        raise DataError(f"{folder} has no metrics of a run", why=str(error)) from error
    if not records:
        raise DataError(f"nothing to draw in {folder}", why="its first epoch is not over")
    return Run(config, records)
