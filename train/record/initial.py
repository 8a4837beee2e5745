"""Reads what a run starts from: the weights of another run or of Keras, or the last state of a finished run.

With ``--init-from``, a run begins anew from weights: those of another run, or those of a DenseNet of Keras for
ImageNet. All of them but the classifier's are taken over. The classifier's are too if the classes are the same, in the
same order.

With ``--continue``, a new run goes on with all variables of a finished one for more epochs. From its first step on, the
learning rate follows the schedule for the new length.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from train.config.configuration import MODEL, NAMED, TrainConfig
from train.errors import DataError, IntegrityError, UsageError
from train.model import pretrained
from train.record import metrics, reader
from train.system.files import write_text

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from train.record.checkpoint import Checkpoint


CLASSIFIER = "classifier/"
"""Prefix of the names of the classifier's weights."""


@dataclass(frozen=True)
class Weights:
    """Weights by name, the names of the classes, and mean and deviation of the channels that they were trained with."""

    values: "dict[str, NDArray[np.generic]]"
    class_names: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    origin: str


def describe_weights(source: str) -> dict[str, Any]:
    """Return the fields of a configuration that follow from the initial weights: the model, and their digest.

    Raises a DataError if there are no weights, and a UsageError for an unknown name.
    """
    place = Path(source)
    if _is_keras(source):
        return pretrained.describe(source)
    config = reader.read_folder_config(place)
    saved = _read_state(place, "start from", remedy="train it first")
    model = {name: getattr(config, name) for name in (*MODEL, "padding")}
    return {**model, "init_sha256": reader.digest_weights(saved)}


def _read_state(place: Path, use: str, *, remedy: str) -> reader.SavedState:
    saved = reader.read_newest_state(place)
    if saved is None:
        raise DataError(f"{place} has no checkpoint to {use}", remedy=remedy)
    return saved


def _is_keras(source: str) -> bool:
    return source.startswith(NAMED) or Path(source).is_file()


def fetch_weights(config: TrainConfig) -> None:
    """Download the initial weights by their name, unless the cache has them or the run has begun."""
    if config.fetches_weights and not reader.list_checkpoints(config.run_dir / reader.CHECKPOINTS):
        pretrained.fetch(config)


def load_weights(config: TrainConfig) -> Weights:
    """Load the weights that a configuration names. Raises an IntegrityError if they have another digest."""
    from train.record import checkpoint

    place = Path(config.init_from)
    digest = describe_weights(config.init_from)["init_sha256"]
    if digest != config.init_sha256:
        raise IntegrityError(
            f"the weights of {place} are not those that this run begins with",
            why=f"their digest is {digest[:12]}, and the configuration has {config.init_sha256[:12]}",
            remedy="give the run that it began with by --init-from",
        )
    if _is_keras(config.init_from):
        return _load_keras(config)
    saved, _ = checkpoint.load(place / reader.CHECKPOINTS)
    assert saved is not None  # noqa: S101 - its digest was computed above
    recorded = reader.read_inputs(saved.position.environment, reader.read_folder_config(place))
    inputs = recorded.for_white(config.white)
    return Weights(saved.values, inputs.class_names, inputs.mean, inputs.std, str(place))


def _load_keras(config: TrainConfig) -> Weights:
    source = pretrained.identify(config.init_from)
    values = pretrained.read(pretrained.fetch(config), source.size)
    names = config.class_names if pretrained.is_imagenet(config.class_names) and f"{CLASSIFIER}bias" in values else ()
    name = source.name or f"weights of DenseNet-{source.size} that Keras does not publish, sha256 {source.digest[:12]}"
    return Weights(values, names, pretrained.MEAN, pretrained.STD, f"{config.init_from} ({name})")


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
    return replace(config, **changes, init_from="", continue_from=str(place), continue_sha256=_digest_state(place))


def load_state(config: TrainConfig, folder: Path) -> "Checkpoint":
    """Return the last state of the finished run as a checkpoint of this run, and copy the metrics to this run's folder.

    Raises an IntegrityError if the state does not have the digest that the configuration names.
    """
    from train.record import checkpoint

    place = Path(config.continue_from)
    digest = _digest_state(place)
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


def _digest_state(place: Path) -> str:
    saved = _read_state(place, "go on from", remedy="take a run that still has its checkpoints")
    if reader.read_record(place).value["weights_sha256"] != reader.digest_weights(saved):
        raise IntegrityError(
            f"the newest checkpoint of {place} has other weights than those with which the run ended",
            remedy=f"see what has changed: toolkit verify {place}",
        )
    return reader.digest_weights(saved, everything=True)
