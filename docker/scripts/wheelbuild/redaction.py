"""Keeps credentials out of what leaves the stage: Bazel writes its whole command line into the event file."""

import json
import re
import shlex
from collections.abc import Iterator
from itertools import pairwise

MASK = "[redacted]"
_GSON = {ord(sign): f"\\u{ord(sign):04x}" for sign in "=<>&'"}
"""Bazel's JSON escapes these too, and many a credential ends with ``=``."""


def read_secrets(rc: str) -> list[str]:
    """Values in an rc file that nobody else may see: those of ``--…header`` options and passwords in URLs.

    Longest first, so that no secret survives as a part of another.
    """
    found = {secret for line in rc.split("\n") for secret in _read_line(line) if secret}
    return sorted(found, key=len, reverse=True)


def redact(text: str, secrets: list[str]) -> str:
    """``text`` without the secrets, in plain form and as JSON writes them."""
    for secret in secrets:
        quoted = {json.dumps(secret, ensure_ascii=ascii_only)[1:-1] for ascii_only in (True, False)}
        for form in {secret, *quoted, *(each.translate(_GSON) for each in quoted)}:
            text = text.replace(form, MASK)
    return text


def _read_line(line: str) -> Iterator[str]:
    try:
        words = shlex.split(line, comments=True)
    except ValueError:  # an open quotation mark, at which Bazel stops too
        words = line.split()
    for word, following in pairwise([*words, ""]):
        option, _, value = word.partition("=")
        if not option.startswith("--"):
            continue
        value = value or following  # `--option=value` and `--option value` mean the same
        if option.endswith("header"):
            yield value.partition("=")[2]
        if match := re.search(r"://[^/@]*:([^/@]+)@", value):
            yield match[1]
