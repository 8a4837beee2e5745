"""Decides which kernels a run uses, before its folder is named after its configuration."""

from dataclasses import replace
from typing import NamedTuple

from train import budget
from train.config import Kernels, TrainConfig
from train.errors import PreflightError
from train.native import library


class Choice(NamedTuple):
    """A configuration whose kernels are stock or native, and the reason if ``auto`` was asked for."""

    config: TrainConfig
    reason: str


def choose(config: TrainConfig) -> Choice:
    """Replace ``auto`` by native kernels where they work, else by stock ones."""
    if config.kernels != "auto":
        return Choice(config, "")
    reason = explain_stock(config)
    kernels: Kernels = "stock" if reason else "native"
    return Choice(replace(config, kernels=kernels), f"{kernels} kernels: {reason or library.find().origin}")


def explain_stock(config: TrainConfig) -> str:
    """Return why native kernels cannot run this configuration here; an empty text if they can."""
    needs = config.explain_stock()
    if needs:
        return f"native ones do not work with {needs}"
    if budget.read_device_memory():
        return "there is a GPU"
    try:
        library.find()
    except PreflightError as error:
        return f"{error.what}: {error.why}" if error.why else error.what
    return ""
