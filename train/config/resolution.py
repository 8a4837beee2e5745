"""Turns the options of a command into a configuration."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from train.config import origin, presets
from train.config.configuration import INCIDENTAL, MODEL, OPEN, TrainConfig
from train.config.presets import read_table, require_choice
from train.errors import UsageError


def resolve(dataset: str, **options: Any) -> TrainConfig:
    """Return a configuration, in which options that are ``None`` come from the data set, the preset and the recipe."""
    given = {name: value for name, value in options.items() if value is not None}
    trunk: dict[str, Any] = given.pop("trunk", {})  # the model that the run starts from
    if (MODEL | {"depth"}) & given.keys():
        trunk = {}
    datasets, recipes = read_table("datasets"), read_table("recipes")
    if dataset not in datasets and (origin.is_path(dataset) or dataset.startswith("hf:")):
        facts, place = origin.OWN, origin.identify(dataset, given.get("data_dir", ""), given.get("cache_dir", ""))
        given |= place | {"by_size": not (MODEL | {"depth"}) & given.keys() and not trunk}
    else:
        require_choice("dataset", dataset, tuple(datasets))
        facts = datasets[dataset]
    recipe = given.setdefault("recipe", facts["recipe"])
    require_choice("recipe", recipe, tuple(recipes))
    filled = recipes[recipe] | {"epochs": facts["epochs"][recipe], "augment": facts["augment"]} | facts.get(recipe, {})
    if given.get("augment", filled["augment"]):
        filled["dropout"] = 0.0

    changed: dict[str, Any] = {name: given.pop(name) for name in presets.SHAPE if name in given}
    model = trunk or _resolve_model(given.pop("model", facts["model"]), changed)
    return complete(TrainConfig(**{"dataset": dataset, **filled, **model, **given}))


def complete(config: TrainConfig, shape: Sequence[int] = (), names: Sequence[str] = ()) -> TrainConfig:
    """Fill in what the data says: shape of the images, names of the classes, and the model that follows from them."""
    if not config.own:
        return config
    shape = (*shape[:2], 3) if shape and config.padding == "even" else shape  # Keras' networks take colour
    facts: dict[str, Any] = {"image_shape": tuple(shape), "class_names": tuple(names)}
    if config.by_size and (shape[0] if shape else config.image_size) > origin.SMALL:
        facts |= _resolve_model(origin.OWN["large"], {})
    return dataclasses.replace(config, **facts)


def _resolve_model(preset: str, changed: Mapping[str, Any]) -> dict[str, Any]:
    table = read_table("presets")
    require_choice("model", preset, tuple(table))
    return presets.resolve(table, preset, changed)


def apply_options(config: TrainConfig, options: Mapping[str, Any]) -> TrainConfig:
    """Return a recorded configuration, changed in the `INCIDENTAL` fields and in `OPEN` ones that are left open.

    Raises a UsageError if an option contradicts another field.
    """
    given, changes = dict(options), {}
    if "model" in given and given["model"] != config.model:
        changed: dict[str, Any] = {name: given.pop(name) for name in presets.SHAPE if name in given}
        given |= _resolve_model(given.pop("model"), changed)
    for name, value in given.items():
        if name == "depth":
            current = list(config.layers)
            wanted = presets.count_layers(value, bottleneck=config.bottleneck)
        else:
            current, wanted = getattr(config, name), value
        if name in INCIDENTAL or (name in OPEN and current == OPEN[name]):
            changes[name] = value
        elif wanted != current:
            raise UsageError(
                f"--{name.replace('_', '-')} {value} contradicts the recorded configuration, which has {current}",
                remedy="leave the option out; for another run, leave out --config or --continue and give the options "
                "themselves",
            )
    return dataclasses.replace(config, **changes)
