"""Reads and writes TensorFlow's variable TF_CONFIG, which names the workers of a run. Worker 0 is the chief."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from train.errors import UsageError

VARIABLE: Final = "TF_CONFIG"

HIGHEST_PORT: Final = 65535


@dataclass(frozen=True)
class Cluster:
    """The workers of a run: the address of each, host:port, and the number of this one."""

    addresses: tuple[str, ...]
    index: int

    @property
    def is_chief(self) -> bool:
        return self.index == 0

    def name(self, index: int) -> str:
        return f"worker {index} ({self.addresses[index]})"

    def divide(self, shards: int) -> range:
        """Return the shards of this worker. Raises a UsageError if the workers cannot share them equally."""
        count = share(shards, len(self.addresses))
        return range(count * self.index, count * (self.index + 1))


def share(shards: int, workers: int, note: str = "") -> int:
    """Return how many shards each worker has. Raises a UsageError if the workers cannot share them equally.

    ``note`` ends the message: it says where the number of workers comes from.
    """
    if shards % workers:
        raise UsageError(
            f"{workers} workers cannot share {shards} shard{'s' * (shards != 1)} equally{note}",
            why="the number of shards decides the weights, and each worker has as many of them as the others",
            remedy=f"give --shards {workers} or a multiple, or as many workers as divide {shards}",
        )
    return shards // workers


def describe(addresses: Sequence[str], index: int) -> dict[str, str]:
    """Return the variables of a worker. ``addresses``: ``host:port`` of all workers; ``index``: its place, from 0."""
    task = {"type": "worker", "index": index}
    return {VARIABLE: json.dumps({"cluster": {"worker": list(addresses)}, "task": task})}


def read_whole(variables: Mapping[str, str], name: str, default: int | None = None) -> int:
    """Return the whole number of a variable, or the default if it is not set. Raises a UsageError for other text."""
    text = variables.get(name, "")
    if text.isascii() and text.isdigit():
        return int(text)
    if text or default is None:
        raise UsageError(
            f"{name} is {text!r}, and not a whole number" if text else f"{name} is not set",
            why="it tells a worker of the others",
            remedy="see docs/scale.md"
            if default is None
            else f"give a number, or leave {name} out" + (f": it is then {default}" if default else ""),
        )
    return default


def _find_trouble(addresses: Sequence[object]) -> str:
    for address in addresses:
        host, _, port = str(address).rpartition(":")
        if not (host and port.isascii() and port.isdigit() and 1 <= int(port) <= HIGHEST_PORT):
            return f"{address} is not host:port with a port from 1 to {HIGHEST_PORT}"
        if addresses.count(address) > 1:
            return f"{address} is there twice, and each worker has an address of its own"
    return ""


def read_cluster(text: str | None = None) -> Cluster | None:
    """Read TF_CONFIG; return None if it is not set or has one worker. Raises a UsageError if it is not valid."""
    text = os.environ.get(VARIABLE, "") if text is None else text
    if not text:
        return None
    try:
        value = json.loads(text)
        addresses, task = value["cluster"]["worker"], value["task"]
        good = list(value["cluster"]) == ["worker"] and task["type"] == "worker"
        good = good and isinstance(task["index"], int) and 0 <= task["index"] < len(addresses)
        trouble = "" if good else "it must have workers only, and the index of one of them"
        trouble = trouble or _find_trouble(addresses)
    except (ValueError, KeyError, TypeError) as error:
        trouble = f"{type(error).__name__}: {error}"
    if trouble:
        raise UsageError(
            f"{VARIABLE} does not name workers",
            why=trouble,
            remedy='write it as {"cluster": {"worker": ["host:port", ...]}, "task": {"type": "worker", "index": 0}}',
        )
    return Cluster(tuple(addresses), task["index"]) if len(addresses) > 1 else None
