"""Computes what shapes that do not go together say: numbers of dimensions, the batch, the last size, or the others."""

import re
from collections.abc import Mapping
from typing import Any

Words = Mapping[str, str]


def compare(words: Words, _facts: Words, _known: Mapping[str, Any]) -> Words:
    """Return in which of their sizes two shapes differ: ``batch``, ``last`` or ``size``; nothing if that is unclear."""
    told: dict[str, str] = {}
    if {"logits", "labels"} <= words.keys():
        told = {"one": words["logits"], "other": words["labels"]}
        told |= _compare_labels(*(re.findall(r"\d+|none", each.lower()) for each in told.values()))
    one, other = (re.findall(r"\d+|none", {**words, **told}.get(name, "").lower()) for name in ("one", "other"))
    if len(one) != len(other) or len(one) < 2:
        return told
    places = [i for i, (first, second) in enumerate(zip(one, other, strict=True)) if first != second]
    pair = {value for i in places for value in (one[i], other[i])}
    if not places or pair & {"1", "none"}:
        return told
    if places == [0]:
        return {**told, "differ": "batch"}
    if places == [len(one) - 1]:
        return {**told, "differ": "last"}
    return {**told, "differ": "size"} if 0 not in places and len(one) > 2 else told


def _compare_labels(logits: list[str], labels: list[str]) -> Words:
    """Return what labels are that do not go with results.

    They are numbers of ``classes``, or each example has several ``steps``, ``columns`` (of classes) or ``results``.
    """
    if len(logits) == len(labels) > 1 and labels[-1] == "1" and logits[-1] not in {"1", "none"}:
        return {"classes": logits[-1]}
    if len(labels) == 1 < len(logits) and {logits[0], labels[0]}.isdisjoint({"0", "none"}):
        few, many = sorted((int(logits[0]), int(labels[0])))
        steps, rest = divmod(many, few)
        if rest or steps == 1:
            return {}
        kind = "results" if many == int(logits[0]) else "columns" if logits[1:] == [str(steps)] else "steps"
        return {"batch": str(few), kind: str(steps)}
    return {}


def ranks(words: Words, _facts: Words, _known: Mapping[str, Any]) -> Words:
    """Return the numbers of dimensions that a layer wants and gets, as in ``4 3``, where they differ."""
    if {"wanted", "other"} <= words.keys():
        wanted, other = (len(re.findall(r"\d+|none", words[name].lower())) for name in ("wanted", "other"))
    elif {"rank", "found"} <= words.keys():
        wanted, other = int(words["rank"]), int(words["found"])
    else:
        return {}
    return {"ranks": f"{wanted} {other}"} if wanted != other else {}
