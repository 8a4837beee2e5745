"""Compute capabilities, as people write them and as TensorFlow's build reads them.

``sm_75`` is machine code for one architecture, ``compute_75`` is that and PTX for newer ones. A list of plain numbers
becomes ``sm_`` for all and ``compute_`` for the highest, as TensorFlow's cuda_configure.bzl does it.
"""

import re
from collections.abc import Iterable, Sequence

from toolkit.errors import UsageError

_PLAIN = re.compile(r"([0-9]{1,2})\.([0-9])([af]?)")
_PREFIXED = re.compile(r"(sm|compute)_([0-9]{1,2})([0-9])([af]?)")


def normalize(asked: Iterable[str]) -> tuple[str, ...]:
    """The list for HERMETIC_CUDA_COMPUTE_CAPABILITIES: lowest first, each once, machine code before PTX.

    Raises:
        UsageError: one is written in neither form, or the forms are mixed.
    """
    items = list(dict.fromkeys(asked))
    plain = [item for item in items if _PLAIN.fullmatch(item)]
    prefixed = [item for item in items if _PREFIXED.fullmatch(item)]
    if len(plain) + len(prefixed) < len(items):
        wrong = next(item for item in items if item not in plain and item not in prefixed)
        raise UsageError(f"not a compute capability: {wrong[:40]!r}", remedy="write it as 7.5, sm_75 or compute_75")
    if plain and prefixed:
        raise UsageError(
            "compute capabilities in two forms",
            why=f"{', '.join(plain)} beside {', '.join(prefixed)}: which of them get PTX is not clear",
            remedy="write all as numbers, or all with sm_ or compute_",
        )
    if not plain:
        return tuple(sorted(prefixed, key=lambda item: (_order(number(item)), item.startswith("compute"))))
    ordered = sorted(plain, key=_order)
    names = [item.replace(".", "") for item in ordered]
    return (*(f"sm_{name}" for name in names[:-1]), f"compute_{names[-1]}")


def number(name: str) -> str:
    """``7.5`` for ``sm_75`` and ``compute_75``."""
    match = _PREFIXED.fullmatch(name)
    if match is None:
        raise UsageError(f"not a compute capability: {name[:40]!r}", remedy="write it as sm_75 or compute_75")
    return f"{match[2]}.{match[3]}{match[4]}"


def base(number_: str) -> str:
    """The number without the letter of an architecture's own features: ``9.0`` for ``9.0a``."""
    return number_.rstrip("af")


def find_nearest(asked: str, known: Sequence[str]) -> str:
    """The highest known capability that is not above the one asked for, whose code runs there; else the lowest."""
    below = [item for item in known if _order(item) <= _order(asked)]
    return max(below, key=_order) if below else min(known, key=_order)


def _order(plain: str) -> tuple[int, int, str]:
    whole, _, rest = plain.partition(".")
    return int(whole), int(base(rest)), rest
