"""Continues a finished run for more epochs, as a new run that begins with all variables of the finished one.

From its first step on, the learning rate follows the schedule for the new length.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from train.config.configuration import TrainConfig
from train.errors import DataError, IntegrityError, UsageError
from train.record import metrics, reader
from train.system.files import write_text

if TYPE_CHECKING:
    from train.record.checkpoint import Checkpoint

CHANGED: Final = ("epochs", "steps", "learning_rate", "schedule")
"""Options that may differ from those of the finished run."""


def extend(place: Path, options: Mapping[str, Any]) -> TrainConfig:
    """Return the configuration of a finished run with a greater length, and other `CHANGED` options if they are given.

    Raises a UsageError if the length is not greater or the run cannot go on, and an IntegrityError if it is damaged.
    """
    record, config = reader.read_record(place), reader.read_folder_config(place)
    if config.best or config.patience:
        raise UsageError(
            f"{place} ended with the weights of an epoch that it chose, so nothing goes on from its last step",
            remedy=f"start another run from these weights: --init-from {place}",
        )
    name = "steps" if "steps" in options else "epochs"
    done = record.result[name]
    if options.get(name, 0) <= done:
        raise UsageError(
            f"--continue {place} needs a greater --{name} than the {done} that are done",
            remedy=f"give the {name} of both runs together",
        )
    changes = {"steps": 0} | {name: options[name] for name in CHANGED if name in options}
    return replace(
        config, **changes, init_from="", continue_from=str(place), continue_sha256=_digest(place, _read(place))
    )


def load(config: TrainConfig, folder: Path) -> "Checkpoint":
    """Return the last state of the finished run as a checkpoint of this run, and copy the metrics to this run's folder.

    Raises an IntegrityError if the state does not have the digest that the configuration names.
    """
    from train.record import checkpoint

    place = Path(config.continue_from)
    digest = _digest(place, _read(place))
    if digest != config.continue_sha256:
        raise IntegrityError(
            f"{place} is not what this run goes on from",
            why=f"the digest of its state is {digest[:12]}, and the configuration has {config.continue_sha256[:12]}",
            remedy="give the run that it went on from by --continue",
        )
    saved, _ = checkpoint.load(place / reader.CHECKPOINTS)
    assert saved is not None  # noqa: S101 - its digest was computed above
    for name in (metrics.CSV, metrics.LINES):
        try:
            text = (place / name).read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise DataError(f"cannot read {place / name}", why=str(error)) from error
        write_text(folder / name, text)
    position = replace(saved.position, config_sha256=config.digest, resumed=[], continued=saved.position.step)
    return replace(saved, position=position)


def require_whole_epochs(step: int, steps_per_epoch: int) -> None:
    """Raise a UsageError if a run ended within an epoch."""
    if step % steps_per_epoch:
        raise UsageError(
            f"the run to continue ended within an epoch, after step {step}",
            why=f"an epoch has {steps_per_epoch} steps, and the means of that epoch would be those of its rest",
            remedy="continue a run that ended with an epoch, as those of --epochs do",
        )


def _read(place: Path) -> reader.SavedState:
    saved = reader.read_newest_state(place)
    if saved is None:
        raise DataError(f"{place} has no checkpoint to go on from", remedy="take a run that still has its checkpoints")
    return saved


def _digest(place: Path, saved: reader.SavedState) -> str:
    if reader.read_record(place).value["weights_sha256"] != reader.digest_weights(saved):
        raise IntegrityError(
            f"the newest checkpoint of {place} is not that of its end", remedy=f"look at it by: toolkit verify {place}"
        )
    return reader.digest_weights(saved, everything=True)
