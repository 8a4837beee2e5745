"""Reads the weights that a run starts from: those of another run, or those of a DenseNet of Keras for ImageNet.

Everything but the classifier is taken over. The classifier is too where the classes are the same, in the same order.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from train import reader
from train.config import TrainConfig
from train.errors import DataError, IntegrityError
from train.fields import MODEL

if TYPE_CHECKING:
    import keras
    import numpy as np
    from numpy.typing import NDArray

CLASSIFIER = "classifier/"
"""Prefix of the names of the classifier's weights."""


@dataclass(frozen=True)
class Start:
    """Weights by name, the names of the classes, and mean and deviation of the channels that they were trained with."""

    values: "dict[str, NDArray[np.generic]]"
    class_names: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]


def describe(place: Path) -> dict[str, Any]:
    """Return the fields of a configuration that follow from where a run starts: the model, and a digest of the weights.

    Raises a DataError if there are no weights.
    """
    config = reader.read_folder_config(place)
    model = {name: getattr(config, name) for name in MODEL}
    return {**model, "init_sha256": reader.digest_weights(_read_state(place))}


def _read_state(place: Path) -> reader.SavedState:
    saved = reader.read_newest_state(place)
    if saved is None:
        raise DataError(f"{place} has no checkpoint to start from", remedy="train it first")
    return saved


def load(config: TrainConfig) -> Start:
    """Load the weights that a configuration names; raises an IntegrityError if they are not those of its digest."""
    from train import checkpoint

    place = Path(config.init_from)
    found = describe(place)["init_sha256"]
    if found != config.init_sha256:
        raise IntegrityError(
            f"the weights of {place} are not those that this run begins with",
            why=f"their digest is {found[:12]}, and the configuration has {config.init_sha256[:12]}",
            remedy="give the run that it began with by --init-from",
        )
    saved, _ = checkpoint.load(place / reader.CHECKPOINTS)
    assert saved is not None  # noqa: S101 - its digest was computed above
    inputs = reader.read_inputs(saved.position.environment, reader.read_folder_config(place))
    return Start(saved.values, inputs.class_names, inputs.mean, inputs.std)


def assign(model: "keras.Model", start: Start, class_names: tuple[str, ...]) -> str:
    """Give a model its initial weights; returns what was taken over. Raises a DataError if they do not fit."""
    from train.state import name_weights

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


def hash_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
