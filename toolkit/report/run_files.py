"""Reads folders of runs for a page, as far as they go: a run need be neither finished nor whole."""

import csv
import io
import json
import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeGuard

from toolkit.base.errors import ToolkitError
from train.config.configuration import TrainConfig
from train.record import metrics, reader
from train.record.metrics import EpochRecord
from train.system.files import LARGEST_LINES, read_regular, read_text


@dataclass(frozen=True)
class RunFolder:
    """A run as it lies on disk. What is missing or damaged in it is empty."""

    folder: Path

    @cached_property
    def name(self) -> str:
        return self.folder.resolve().name

    @cached_property
    def value(self) -> Mapping[str, Any]:
        """The manifest; empty if the run is not finished."""
        try:
            return reader.read_record(self.folder).value
        except ToolkitError:
            return {}

    @cached_property
    def config(self) -> TrainConfig:
        return reader.read_folder_config(self.folder)

    @cached_property
    def epochs(self) -> list[EpochRecord]:
        """The records of epochs; damaged lines, and those with what is no number, are left out."""
        try:
            epochs = metrics.read_epochs(self.folder / metrics.CSV)
        except OSError:
            return []
        return [epoch for epoch in epochs if all(map(math.isfinite, asdict(epoch).values()))]

    @cached_property
    def steps(self) -> list[Mapping[str, Any]]:
        """The records of steps; damaged lines are left out."""
        lines = []
        with suppress(OSError):
            for line in read_regular(self.folder / metrics.LINES, LARGEST_LINES).decode(errors="replace").splitlines():
                with suppress(ValueError, RecursionError):
                    value = json.loads(line)
                    if isinstance(value, dict) and value.get("kind") == "step" and is_number(value.get("loss")):
                        lines.append(value)
        return [line for line in lines if is_number(line.get("step"))]

    @property
    def result(self) -> Mapping[str, Any]:
        return dict(self.value.get("result", {}))

    @property
    def environment(self) -> Mapping[str, Any]:
        return dict(self.value.get("environment", {}))

    @property
    def watched(self) -> str:
        """The split whose numbers the curves have."""
        return "validation" if self.config.validation else "test"

    @cached_property
    def confusion(self) -> tuple[list[str], list[list[int]]] | None:
        try:
            with io.StringIO(read_text(self.folder / reader.CONFUSION), newline="") as file:
                head, *rows = csv.reader(file)
            counts = [[int(count) for count in row[1:]] for row in rows]
        except (OSError, ValueError, csv.Error):
            return None
        names = head[1:]
        whole = len(counts) == len(names) and all(len(row) == len(names) for row in counts)
        return (names, counts) if whole and names else None


def is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def show_share(share: float) -> str:
    return f"{share:.2%}"


def show_loss(loss: float) -> str:
    return f"{loss:.4f}"


def show_seconds(seconds: float) -> str:
    """Return a time in the two units that say the most."""
    if seconds < 100:
        return f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    return f"{seconds / 60:.1f} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"


def show_bytes(count: float) -> str:
    """Return a size in decimal units."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:,.2f} {unit}" if unit == "GB" else f"{count / size:,.0f} {unit}"
    return f"{count:,.0f} bytes"
