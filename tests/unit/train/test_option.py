"""One entry of the configuration is enough: a field that is added here is found wherever options are read or shown."""

import dataclasses
from typing import Any

import pytest

from train.command_line import parse
from train.config.configuration import INCIDENTAL, OPTIONS, TrainConfig

CHANGES: dict[str, Any] = {
    "dataset": "fashion_mnist",
    "labels": "coarse",
    "normalize": "range",
    "model": "another",
    "layers": (2, 2, 2),
    "recipe": "another",
    "optimizer": "adam",
    "schedule": "cosine",
    "memory": "plain",
    "precision": "float64",
    "kernels": "native",
    "loop": "eager",
    "stem": "imagenet",
    "padding": "even",
    "crop": "resized",
    "class_weights": "balanced",
    "progress": "plain",
    "profile": (1, 2),
}
"""Another value of each field that is no number and no text that may be anything."""


def change(name: str, value: Any) -> Any:
    if name in CHANGES:
        return CHANGES[name]
    if isinstance(value, bool):
        return not value
    if isinstance(value, tuple):
        return ("mlflow",) if name == "log_to" else (1,)
    return value / 2 + 0.2 if isinstance(value, float) else value + 1 if isinstance(value, int) else f"{value}another"


@pytest.mark.parametrize("name", sorted(OPTIONS.keys() - {"image_shape", "class_names", "data_sha256"}))
def test_the_digest_knows_what_decides(name: str) -> None:
    fields = dataclasses.asdict(parse(["digits"]))
    fields |= {name: change(name, fields[name])}
    changed = object.__new__(TrainConfig)  # unchecked: many of these changes want a second one
    for field, value in fields.items():
        object.__setattr__(changed, field, value)
    assert (changed.digest == parse(["digits"]).digest) == (name in INCIDENTAL)
