"""Finds the name that was meant where a name is refused, among those that the message lists or that Keras has."""

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

_ALIKE: Final = 0.72
"""Least likeness of two names, of 1, of which one may be the other misspelt."""
_DIGITS: Final = re.compile(r"\d+")
_NAME: Final = re.compile(r"[A-Za-z_][\w.-]*")

Words = Mapping[str, str]


def find_identifier(words: Words, _facts: Words, known: Mapping[str, Any]) -> Words:
    """Return the name of Keras that is most like an unknown one of its ``sort`` (loss, optimizer and the like)."""
    return _find(words.get("unknown", ""), known["keras_identifiers"].get(words.get("sort", "").lower(), ()))


def find_argument(words: Words, _facts: Words, known: Mapping[str, Any]) -> Words:
    """Return the argument that is most like an unknown one: of those that the message lists, or that Keras has."""
    listed = _NAME.findall(words.get("listed", ""))
    of_keras = "layer" in words or words.get("function") == "optimizer"
    if of_keras and words.get("name") in known["keras_arguments"]:
        return {"elsewhere": words["name"]}
    return _find(words.get("name", ""), [*listed, *(known["keras_arguments"] if of_keras else ())])


def find_layer_argument(words: Words, _facts: Words, known: Mapping[str, Any]) -> Words:
    """Return the argument of a layer of Keras that is most like an unknown one."""
    return _find(words.get("name", ""), known["keras_arguments"])


def find_listed(words: Words, _facts: Words, _known: Mapping[str, Any]) -> Words:
    """Return which of the names that a message lists is most like the one that it refuses."""
    return _find(words.get("refused", words.get("value", "")), _NAME.findall(words.get("allowed", "")))


def find_logged(words: Words, _facts: Words, _known: Mapping[str, Any]) -> Words:
    """Return the name in the logs of an epoch that a callback means by another, or why the logs have none for it.

    ``unvalidated``: they have no values of a validation at all. ``empty``: they have no losses.
    """
    asked, held = words.get("asked", ""), _NAME.findall(words.get("held", ""))
    if "held" not in words or not asked:
        return {}
    if not any("loss" in each for each in held):
        return {"empty": "yes"}
    short = re.sub(r"_\d+$", "", asked.lower().replace("accuracy", "acc"))
    alike = [each for each in held if re.sub(r"_\d+$", "", each.lower().replace("accuracy", "acc")) == short]
    if alike:
        return {"numbered" if re.search(r"_\d+$", alike[-1]) else "meant": alike[-1]}
    if asked.startswith("val_") and not any(each.startswith("val_") for each in held):
        return {"unvalidated": "yes"}
    # Where a metric has another name, only one of the same side can be meant: val_f1 is none of the training.
    side = [each for each in held if each.startswith("val_") == asked.startswith("val_")]
    return _find(asked, side)


def _find(name: str, names: Iterable[str]) -> Words:
    wrong = _reduce(name)
    by_form = {_reduce(each): each for each in names if each != name}
    parts = {part for part in name.lower().split("_") if len(part) > 2}
    # A name that has all parts of the refused one, and others, is what was meant: sparse_crossentropy.
    whole = [form for form, each in by_form.items() if len(parts) > 1 and parts <= {*each.split("_")}]
    near = whole or difflib.get_close_matches(wrong, by_form, n=1, cutoff=_ALIKE) if name else []
    # Of names that differ in their number, such as float16 and float64, none is more like another.
    if not near or (near[0] != wrong and _DIGITS.sub("", near[0]) == _DIGITS.sub("", wrong)):
        return {}
    return {"meant": by_form[near[0]]}


def _reduce(name: str) -> str:
    return name.lower().replace("_", "")
