from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from train.config.configuration import Kernels, TrainConfig, find_stock_option
from train.errors import PreflightError
from train.native import library
from train.record.reader import name_kernels
from train.step import budget


class Choice(NamedTuple):
    """A configuration with its kernels filled in, and the reason if the run has chosen them."""

    config: TrainConfig
    reason: str


def fix_kernels(config: TrainConfig, recorded: Mapping[str, Any]) -> Choice:
    """Fill in the kernels: the configured ones, else those `recorded` by an interrupted run, else the best here.

    Raises a PreflightError if native ones would be chosen but cannot be kept on disk, or if training in
    bfloat16 would be slower than in float32 on this processor.
    """
    if config.kernels != "auto":
        return Choice(config, "")
    if recorded:
        return Choice(replace(config, kernels=name_kernels(recorded)), "")
    reason = explain_stock(config)
    if not reason and config.precision == "mixed_bfloat16":
        _require_fast_bfloat16(library.find().instructions)
    kernels: Kernels = "stock" if reason else "native"
    return Choice(replace(config, kernels=kernels), f"{kernels} kernels: {reason or library.find().origin}")


def _require_fast_bfloat16(instructions: str) -> None:
    if instructions != "amx":
        raise PreflightError(
            "in mixed_bfloat16, training is slower than in float32 on this processor",
            why=f"it has no AMX; by {instructions}, the same sums take longer than those of float32",
            remedy="use --precision float32, or --kernels native for half the memory of maps at that price",
        )


def explain_stock(config: TrainConfig) -> str:
    """Return why this run uses stock kernels, or an empty text if it uses native ones."""
    option = find_stock_option(config)
    if option:
        return f"native ones do not work with {option}"
    if _has_device_files() and budget.read_device_memory():
        return "there is a GPU"
    try:
        library.find()
    except library.CacheError:  # no reason for stock kernels: the next run may keep them, and get other weights
        raise
    except PreflightError as error:
        return f"{error.what}: {error.why}" if error.why else error.what
    return ""


def _has_device_files(folder: Path = Path("/dev")) -> bool:
    return (folder / "dxg").exists() or next(folder.glob("nvidia*"), None) is not None
