"""The GPUs that can be emulated: a table of real cards, and changes to one of them."""

import difflib
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

from train.emulation import MARK
from train.errors import UsageError

DRIVER: Final = "12.6"
"""CUDA version of the emulated driver, unless the card needs a newer one or another is asked for."""


@dataclass(frozen=True, kw_only=True)
class Device:
    """An emulated GPU.

    Attributes:
        name: the card's name as its driver gives it, and `MARK` behind it.
        capability: compute capability, major and minor.
        multiprocessors: number of streaming multiprocessors.
        memory: bytes in all.
        shared: bytes of shared memory that a block may have at most.
        threads: most threads that a multiprocessor holds at a time.
        blocks: most blocks that a multiprocessor holds at a time.
        driver: newest CUDA version that the driver supports, major and minor.
        count: how many such devices there are.
    """

    name: str
    capability: tuple[int, int]
    multiprocessors: int
    memory: int
    shared: int
    threads: int
    blocks: int
    driver: tuple[int, int]
    count: int = 1


@cache
def read_devices() -> dict[str, dict[str, Any]]:
    """Read the table of devices: short name to facts."""
    text = (Path(__file__).parent / "devices.yaml").read_text(encoding="utf-8")
    table: dict[str, dict[str, Any]] = yaml.safe_load(text)
    return table


def choose(name: str, *, driver: str = "", memory: float = 0.0, capability: str = "", count: int = 1) -> Device:
    """Look a device up by its short name, and change what is asked for.

    Args:
        name: short name of the table, such as ``t4``.
        driver: newest CUDA version that its driver supports, as ``X.Y``; empty for a usual one.
        memory: gigabytes instead of the card's own; 0 for the card's own.
        capability: compute capability ``X.Y`` instead of the card's own; empty for the card's own.
        count: number of devices.

    Raises:
        UsageError: the name is unknown, or a value makes no sense.
    """
    table = read_devices()
    key = name.lower().replace(" ", "").replace("-", "")
    if key not in table:
        near = difflib.get_close_matches(key, table, n=1, cutoff=0.4)
        raise UsageError(
            f"unknown GPU: {name!r}",
            why=f"known are {', '.join(table)}",
            remedy=f"did you mean {near[0]}?" if near else "",
        )
    if memory < 0 or count not in {1, 2}:
        raise UsageError(
            f"no such device: {memory:g} GB of memory, {count} devices",
            remedy="give --memory a positive number, and --gpus 1 or 2",
        )
    facts = table[key]
    device = Device(
        name=f"{facts['name']} {MARK}",
        capability=_read_version(facts["capability"]),
        multiprocessors=facts["multiprocessors"],
        memory=facts["memory"],
        shared=facts["shared"],
        threads=facts["threads"],
        blocks=facts["blocks"],
        driver=_read_version(driver or facts.get("driver", DRIVER)),
        count=count,
    )
    if memory:
        device = replace(device, memory=int(memory * 1e9))
    if capability:
        device = replace(device, capability=_read_version(capability))
    return device


def _read_version(text: str) -> tuple[int, int]:
    major, dot, minor = text.partition(".")
    if not (dot and major.isdecimal() and minor.isdecimal()) or int(minor) > 9:
        raise UsageError(f"not a version: {text!r}", remedy="write it as X.Y, for example 7.5 or 12.6")
    return int(major), int(minor)
