"""Says how messages of systems, shells and compilers read in other languages than English."""

import functools
import re
from pathlib import Path
from typing import Final

from toolkit.versions.table import read_yaml

_PATH: Final = Path(__file__).with_name("languages.yaml")
_WHOLE: Final = "Killed"
"""A message that is a word of others too, and counts where it is all that a pattern has."""
_WORDS: Final = re.compile(r"(<[^<>|]*\|[^<>]*>|\{[^{}]*\}|`[^`]*`)")
"""A part of a pattern that stands for other texts than its own."""


def translate(text: str) -> str:
    """Return a pattern that finds a message in other languages too."""
    if not _find_messages().search(text):
        return text
    return "".join(_translate(part) for part in _WORDS.split(text))


def _translate(part: str) -> str:
    if part.startswith("<") and part.endswith(">"):
        words = part[1:-1].split("|")
        return f"<{'|'.join([*words, *(said for word in words for said in _list(word))])}>"
    if part.startswith(("{", "`")):
        return part
    return _find_messages().sub(lambda found: f"<{'|'.join([found[0], *_load()[found[0]]])}>", part)


def _list(word: str) -> list[str]:
    return [word.replace(found[0], said) for found in _find_messages().finditer(word) for said in _load()[found[0]]]


@functools.cache
def _load() -> dict[str, list[str]]:
    """Return how each message reads in other languages."""
    messages: dict[str, list[str]] = read_yaml(_PATH.read_bytes())
    return messages


@functools.cache
def _find_messages() -> re.Pattern[str]:
    """Return what finds a message in a pattern: the longest that stands there."""
    others = sorted(_load().keys() - {_WHOLE}, key=len, reverse=True)
    return re.compile("|".join([rf"\A{_WHOLE}\Z", *map(re.escape, others)]))
