"""Says what an option of a run is. Each is declared once, as a field of the configuration.

The command line, its help, the checks of single values, the digest of a run, the JSON schema and the pages are made
from these declarations.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass
from typing import Any, Final, Literal

from train.errors import UsageError

Panel = Literal["Model", "Training", "Speed and memory", "Data", "Output"]

_KEY: Final = "option"

UNSET: Final[Any] = object()
"""Stands for no value, where None is one."""


@dataclass(frozen=True, kw_only=True)
class Option:
    """What is known about a field of the configuration beside its name, type and default."""

    help: str = ""  # empty if it has no option on the command line
    panel: Panel = "Output"
    flag: str = ""  # its name on the command line, if that is not the field's
    metavar: str | None = None
    asked: Any = UNSET  # default on the command line; None if data set, model or recipe decide it
    read: Callable[[str], Any] | None = None  # makes the value from a text of the command line
    least: float | None = None
    most: float | None = None
    share: str = ""  # what it is a share of, for values in [0, 1)
    decides: bool = True  # whether it changes what is computed, not only places of files, output and times of saving
    found: bool = False  # whether it follows from the data, and is filled in once they are read
    later: bool = False  # whether older runs lack it; they used the default, so a default is left out of the digest
    open: Any = UNSET  # value with which the run chooses the value itself, and records it

    def check(self, name: str, value: float) -> None:
        """Raise a UsageError if a number is outside of the bounds."""
        flag = name_flag(name)
        if isinstance(value, float) and not math.isfinite(value):
            raise UsageError(f"{flag} must be a number, not {value}")
        if self.least is not None and value < self.least:
            raise UsageError(f"{flag} must be at least {self.least}, not {value}")
        if self.most is not None and value > self.most:
            raise UsageError(f"{flag} must be at most {self.most}, not {value}")
        if self.share and not 0 <= value < 1:
            raise UsageError(f"{flag} is the share of {self.share}, in [0, 1), not {value}")


def option(panel: Panel, text: str, default: Any = MISSING, **known: Any) -> Any:
    """Declare a field that has an option on the command line, with its help and its default."""
    return dataclasses.field(default=default, metadata={_KEY: Option(help=text, panel=panel, **known)})


def derived(default: Any = MISSING, **known: Any) -> Any:
    """Declare a field that follows from other options or from the data, and has no option of its own."""
    return dataclasses.field(default=default, metadata={_KEY: Option(**known)})


def list_options(configuration: type) -> Mapping[str, Option]:
    """Return what is known about each field, by its name."""
    return {field.name: field.metadata[_KEY] for field in dataclasses.fields(configuration)}


def name_flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def read_pair(text: str) -> tuple[int, int]:
    try:
        first, last = (int(part) for part in text.split(":"))
    except ValueError:
        raise UsageError(
            f"not a range of steps: {text!r}", remedy="write it as FIRST:LAST, for example 10:15"
        ) from None
    if not 0 < first <= last:
        raise UsageError(f"not a range of steps: {text!r}", why="the first step is 1, and the last is not before it")
    return first, last


def read_batch_size(text: str) -> int:
    if text == "auto":
        return 0
    if not text.isdecimal() or int(text) < 1:
        raise UsageError(f"not a batch size: {text!r}", remedy="give a number of examples, or auto")
    return int(text)


def read_freeze(text: str) -> int:
    if text == "all":
        return -1
    if not text.isdecimal():
        raise UsageError(f"not a number of blocks: {text!r}", remedy="give a number, or all")
    return int(text)


def read_blocks(text: str) -> tuple[int, ...]:
    try:
        return tuple(sorted({int(part) for part in text.split(",")}))
    except ValueError:
        raise UsageError(f"not a list of blocks: {text!r}", remedy="write it as 1,2") from None


def read_names(text: str) -> tuple[str, ...]:
    return tuple(filter(None, text.split(",")))
