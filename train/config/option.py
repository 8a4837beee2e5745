"""Says what an option of a run is. Each is declared once, as a field of the configuration.

The command line, its help, the checks of single values, the digest of a run, the JSON schema and the pages are made
from these declarations.
"""

import dataclasses
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass
from types import UnionType
from typing import Any, Final, Literal, get_args, get_origin

from train.errors import UsageError

Panel = Literal["Model", "Training", "Speed and memory", "Data", "Output"]

_KEY: Final = "option"

UNSET: Final[Any] = object()
"""Stands for no value, where None is one."""


@dataclass(frozen=True, kw_only=True)
class Option:
    """What a field of the configuration has besides its name, type and default."""

    help: str = ""  # empty if it has no option on the command line
    panel: Panel = "Output"
    flag: str = ""  # its name on the command line, if that is not the field's
    metavar: str | None = None
    asked: Any = UNSET  # default on the command line; None if data set, model or recipe decide it
    read: Callable[[str], Any] | None = None  # turns a text of the command line into the value
    least: float | None = None
    most: float | None = None
    above: float | None = None  # above, below: limits that a value must not reach
    below: float | None = None
    share: str = ""  # what it is a share of; it is at least 0 and less than 1
    decides: bool = True  # whether it changes what is computed, not only places of files, output and times of saving
    from_data: bool = False  # whether it follows from the data, and is filled in once they are read
    open: Any = UNSET  # value for which the run chooses another one, and records that

    def check(self, name: str, value: float) -> None:
        """Raise a UsageError if a number is outside of the bounds."""
        flag = name_flag(name)
        if isinstance(value, float) and not math.isfinite(value):
            raise UsageError(f"{flag} must be a number, not {value}")
        for limit, holds, words in (
            (self.least, operator.ge, "at least"),
            (self.most, operator.le, "at most"),
            (self.above, operator.gt, "more than"),
            (self.below, operator.lt, "less than"),
        ):
            if limit is not None and not holds(value, limit):
                why = f"it is the share of {self.share}" if self.share else ""
                raise UsageError(f"{flag} must be {words} {limit}, not {value}", why=why)


def option(panel: Panel, text: str, default: Any = MISSING, **known: Any) -> Any:
    """Declare a field that has an option on the command line, with its help and its default."""
    known |= {"least": 0, "below": 1} if "share" in known else {}
    return dataclasses.field(default=default, metadata={_KEY: Option(help=text, panel=panel, **known)})


def derived(default: Any = MISSING, **known: Any) -> Any:
    """Declare a field that follows from other options or from the data, and has no option of its own."""
    return dataclasses.field(default=default, metadata={_KEY: Option(**known)})


def list_options(configuration: type) -> Mapping[str, Option]:
    """Return the declaration of each field, by its name."""
    return {field.name: field.metadata[_KEY] for field in dataclasses.fields(configuration)}


def fits(value: object, kind: Any) -> bool:
    """Return whether a value has the type of a field: a simple one, a choice, a tuple, or one of several."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Literal:
        return value in parts
    if origin is UnionType:
        return any(fits(value, part) for part in parts)
    if origin is tuple:
        kinds = parts[:1] * len(value) if isinstance(value, tuple) and parts[-1] is ... else parts
        return isinstance(value, tuple) and len(value) == len(kinds) and all(map(fits, value, kinds))
    # A truth value is an integer for Python.
    return isinstance(value, int | float if kind is float else kind) and isinstance(value, bool) <= (kind is bool)


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
