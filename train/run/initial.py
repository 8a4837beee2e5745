"""Reads the weights that a run starts from: those of another run, or those of a DenseNet of Keras for ImageNet.

All weights but the classifier's are taken over. The classifier's are too if the classes are the same, in the same
order.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from train.config.configuration import MODEL, NAMED, TrainConfig
from train.errors import DataError, IntegrityError
from train.model import pretrained
from train.record import reader

if TYPE_CHECKING:
    import keras
    import numpy as np
    from numpy.typing import NDArray

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


def describe(source: str) -> dict[str, Any]:
    """Return the fields of a configuration that follow from the initial weights: the model, and their digest.

    Raises a DataError if there are no weights, and a UsageError for an unknown name.
    """
    place = Path(source)
    if _is_keras(source):
        return pretrained.describe(source)
    config = reader.read_folder_config(place)
    model = {name: getattr(config, name) for name in (*MODEL, "padding")}
    return {**model, "init_sha256": reader.digest_weights(_read_state(place))}


def _read_state(place: Path) -> reader.SavedState:
    saved = reader.read_newest_state(place)
    if saved is None:
        raise DataError(f"{place} has no checkpoint to start from", remedy="train it first")
    return saved


def _is_keras(source: str) -> bool:
    return source.startswith(NAMED) or Path(source).is_file()


def fetch(config: TrainConfig) -> None:
    """Download the initial weights by their name, unless the cache has them or the run has begun."""
    if config.fetches_weights and not reader.list_checkpoints(config.run_dir / reader.CHECKPOINTS):
        pretrained.fetch(config)


def load(config: TrainConfig) -> Weights:
    """Load the weights that a configuration names. Raises an IntegrityError if they have another digest."""
    from train.record import checkpoint

    place = Path(config.init_from)
    digest = describe(config.init_from)["init_sha256"]
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
    inputs = reader.read_inputs(saved.position.environment, reader.read_folder_config(place))
    return Weights(saved.values, inputs.class_names, inputs.mean, inputs.std, str(place))


def _load_keras(config: TrainConfig) -> Weights:
    source = pretrained.identify(config.init_from)
    values = pretrained.read(pretrained.fetch(config), source.size)
    names = config.class_names if pretrained.is_imagenet(config.class_names) and f"{CLASSIFIER}bias" in values else ()
    name = source.name or f"weights of DenseNet-{source.size} that Keras does not publish, sha256 {source.digest[:12]}"
    return Weights(values, names, pretrained.MEAN, pretrained.STD, f"{config.init_from} ({name})")


def assign(model: "keras.Model", start: Weights, class_names: tuple[str, ...]) -> str:
    """Give a model its initial weights; returns what was taken over. Raises a DataError if they do not fit."""
    from train.step.state import name_weights

    same = start.class_names == class_names
    weights = {
        name: variable for name, variable in name_weights(model).items() if same or not name.startswith(CLASSIFIER)
    }
    for name, variable in weights.items():
        if name not in start.values or start.values[name].shape != tuple(variable.shape):
            raise DataError(
                f"the weights to start from do not fit the model: {name}",
                remedy="leave out the options of the model: it is then that of --init-from",
            )
    for name, variable in weights.items():
        variable.assign(start.values[name].astype(variable.dtype.as_numpy_dtype))
    return "all weights" if same else f"all weights but the classifier's, for {len(class_names)} other classes"
