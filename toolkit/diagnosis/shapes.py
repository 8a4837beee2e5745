"""Computes what shapes that do not go together say: numbers of dimensions, the batch, the last size, or the others."""

import re
from collections.abc import Mapping
from typing import Any

Words = Mapping[str, str]


def compare(words: Words, _facts: Words, _known: Mapping[str, Any]) -> Words:
    """Return in which of their sizes two shapes differ: ``batch``, ``last`` or ``size``; nothing if that is unclear."""
    one, other = (re.findall(r"\d+|none", words.get(name, "").lower()) for name in ("one", "other"))
    if len(one) != len(other) or len(one) < 2:
        return {}
    places = [i for i, (first, second) in enumerate(zip(one, other, strict=True)) if first != second]
    pair = {value for i in places for value in (one[i], other[i])}
    if not places or pair & {"1", "none"}:
        return {}
    if places == [0]:
        return {"differ": "batch"}
    if places == [len(one) - 1]:
        return {"differ": "last"}
    return {"differ": "size"} if 0 not in places and len(one) > 2 else {}


def ranks(words: Words, _facts: Words, _known: Mapping[str, Any]) -> Words:
    """Return the numbers of dimensions that a layer wants and gets, as in ``4 3``, where they differ."""
    if {"wanted", "other"} <= words.keys():
        wanted, other = (len(re.findall(r"\d+|none", words[name].lower())) for name in ("wanted", "other"))
    elif {"rank", "found"} <= words.keys():
        wanted, other = int(words["rank"]), int(words["found"])
    else:
        return {}
    return {"ranks": f"{wanted} {other}"} if wanted != other else {}
