"""Reads what is known by name: data sets, recipes, and models with changes of their form."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

from train.errors import UsageError

FOLDER: Final = Path(__file__).parents[1]
"""Where the tables of the job are."""

SHAPE: Final = ("depth", "growth", "bottleneck", "compression")


@cache
def read_table(name: str) -> dict[str, Any]:
    text = (FOLDER / f"{name}.yaml").read_text(encoding="utf-8")
    # libyaml is 20 times faster than the Python loader; wheels of PyYAML have it, some distributions' packages do not.
    value: dict[str, Any] = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 (both are safe)
    return value


def describe_datasets() -> str:
    """Return the help text of an argument DATASET."""
    *names, last = read_table("datasets")
    own_images = "the path of a folder, .zip or .tar of your own images, by class"
    return f"{', '.join(names)} or {last}; or {own_images}; or hf:OWNER/NAME[@REVISION]."


def require_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    """Raise a UsageError that lists the choices and names the nearest if the value is none of them."""
    if value not in choices:
        import difflib  # slow to load, and only needed for this message

        near = difflib.get_close_matches(value, choices, n=2, cutoff=0.5)
        raise UsageError(
            f"unknown {name.replace('_', ' ')}: {value!r}",
            why=f"known are {', '.join(choices)}",
            remedy=f"did you mean {' or '.join(near)}?" if near else _explain_use(name),
        )


def _explain_use(name: str) -> str:
    """Return what the user may have meant by a word that is no data set; empty for another kind of word."""
    if name != "dataset":
        return ""
    return "your own images are named by their path, such as ./my-photos"


def resolve(table: Mapping[str, Any], preset: str, changed: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a preset in the table ``presets.yaml``, some of `SHAPE` changed; raises a UsageError."""
    shape = table[preset] | changed
    if "depth" in changed and "layers" in shape:
        others = ", ".join(name for name in table if "layers" in table[name])
        raise UsageError(f"the depth of model {preset} is in its name", remedy=f"choose by --model: {others}")
    if "depth" in shape:
        shape["layers"] = count_layers(shape["depth"], bottleneck=shape["bottleneck"])
    fields = {name: shape[name] for name in ("stem", "growth", "bottleneck", "compression")}
    return {"model": _name(shape) if changed else preset, "layers": tuple(shape["layers"]), **fields}


def count_layers(depth: int, *, bottleneck: bool) -> list[int]:
    """Return the layers n of each of three dense blocks: the depth is 3 n + 4, or 6 n + 4 with bottleneck."""
    unit = 6 if bottleneck else 3
    if depth < 4 + unit or (depth - 4) % unit:
        below = 4 + max(1, (depth - 4) // unit) * unit
        raise UsageError(
            f"no DenseNet{'-BC' if bottleneck else ''} has depth {depth}",
            why=f"three equal dense blocks need a depth of 4 plus a multiple of {unit}",
            remedy=f"use --depth {below} or --depth {below + unit}",
        )
    return [(depth - 4) // unit] * 3


def _name(shape: dict[str, Any]) -> str:
    imagenet = shape["stem"] == "imagenet"
    depth = (5 if imagenet else 4) + sum(shape["layers"]) * (2 if shape["bottleneck"] else 1)
    kind = ("b" if shape["bottleneck"] else "") + ("c" if shape["compression"] < 1 else "")
    usual = imagenet and kind == "bc"  # models for ImageNet are named by depth alone
    return "-".join(filter(None, ("" if usual else kind, str(depth), str(shape["growth"]))))
