"""Finds the compute capability of a card by its name, in cards.yaml."""

import difflib
import functools
import re
from collections.abc import Mapping
from pathlib import Path

from toolkit.errors import UsageError
from toolkit.smoke.inside.gpu_rules import parse_capability
from toolkit.versions.table import read_yaml

PATH = Path(__file__).with_name("cards.yaml")

_GLUED = re.compile(r"\b(rtx|gtx|gt|titan)(?=\d)")
_IGNORED = re.compile(r"nvidia|geforce|tesla|graphics|card|generation|\d+gb|\d+ gb")


@functools.cache
def load_cards() -> Mapping[str, str]:
    """Return the compute capability of each card."""
    return {name: capability for capability, names in read_yaml(PATH.read_bytes())["cards"].items() for name in names}


def find_capability(text: str) -> str:
    """Return the capability of a card such as ``RTX 5090`` or ``NVIDIA A100-SXM4-40GB``, or a capability as it is.

    Raises UsageError: the card is not known.
    """
    given = parse_capability(text)
    if given and not given.kind:
        return given.number
    words, cards = _split(text), load_cards()
    fitting = [name for name in cards if _split(name) <= words]
    if fitting:
        return cards[max(fitting, key=lambda name: len(_split(name)))]
    near = difflib.get_close_matches(text.lower(), {name.lower(): name for name in cards}, 3)
    known = [name for name in cards if name.lower() in near]
    raise UsageError(
        f"no card of this name is known: {text[:60]!r}",
        remedy=(f"did you mean {' or '.join(known)}? " if known else "")
        + "its compute capability can be given instead, such as --gpu 8.6",
    )


def _split(name: str) -> frozenset[str]:
    plain = _IGNORED.sub(" ", _GLUED.sub(r"\1 ", name.lower()))
    return frozenset(re.findall(r"[a-z0-9]+", plain))
