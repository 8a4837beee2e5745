"""Turns the name of a model, and changes of its form, into the fields of a configuration."""

from collections.abc import Mapping
from typing import Any, Final

from train.errors import UsageError

SHAPE: Final = ("depth", "growth", "bottleneck", "compression")


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
