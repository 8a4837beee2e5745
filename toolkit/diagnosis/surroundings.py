"""Reads what stands before and after a line of a log."""

import re
from collections.abc import Mapping
from typing import Final

from toolkit.diagnosis import tracebacks
from toolkit.diagnosis.patterns import Pattern
from toolkit.diagnosis.table import Sign

_LINES: Final = 60
BYTES: Final = 16 << 10
"""How far is looked."""
_REMOVED: Final = re.compile(r"(?m)^\s*uninstalling ([\w.-]+?)-(\d[\w.]*):?$")
_INSTALLED: Final = re.compile(r"installing collected packages: [^\n]*?([\w.-]+)\s*$", re.MULTILINE)
"""What pip installs. The package that was asked for stands last, behind what it needs."""
_COMPILED: Final = re.compile(
    r"[/\\]pip-(?:install|wheel)-\w+[/\\]([\w.-]+?)(?:_[0-9a-f]{32})?[/\\]"
    r"|(?m:^ *(?:Using cached|Downloading) (?:https?://\S*/)?([\w.-]+?)-(\d[\w.]*?)\.(?:zip|tar\.gz)\b)",
    re.IGNORECASE,
)
"""The folder into which pip unpacks the sources of a package, to compile them, and the file in which they come."""
_NAMED: Final = re.compile(r"(?<!\{)\{(\w+)\}(?!\})")
"""A word of the line in an expression for what stands near it."""
_QUOTE: Final = re.compile(r'\\+"')
"""A quotation mark in a string, or in a string of a string."""
_ESCAPED_END: Final = re.compile(r"((?<!\w)[a-z]:\\(?!\\)[^\s\"'<>|*?]*)|\\[rnt]", re.IGNORECASE)
"""A path of Windows, or what stands for the end of a line in a string of JSON."""


class Near:
    """What stands before and after a line."""

    def __init__(self, text: bytes, start: int, end: int) -> None:
        self._text, self._start, self._end = text, start, end
        self._line = _decode(text[start:end])
        self._parts: dict[str, str] = {}

    def allows(self, sign: Sign, words: Mapping[str, str]) -> bool:
        if sign.echoes and not any(self._echoes(text, words) for text in sign.echoes):
            return False
        if any(self.has(pattern) for pattern in sign.without):
            return False
        if any(pattern.stands_in(self._line) for pattern in sign.unlike):
            return False
        if sign.before and not any(self.has(pattern, after=False) for pattern in sign.before):
            return False
        if sign.after and not any(self.has(pattern, before=False) for pattern in sign.after):
            return False
        return not sign.near or any(self.has(pattern) for pattern in sign.near)

    def tell(self, sign: Sign, words: Mapping[str, str]) -> dict[str, str]:
        """Return the words that expressions of a failure find in the lines around this one, or in this one itself."""
        told: dict[str, str] = {}
        for text in sign.tells.get("before", ()):
            told |= self._find(text, words, self._before())
        for text in sign.tells.get("near", ()):
            told |= next(filter(None, (self._find(text, words, part) for part in self._around())), {})
        return told

    def _around(self) -> tuple[str, str, str]:
        return self._before(), self._after(), self._line

    def _echoes(self, text: str, words: Mapping[str, str]) -> bool:
        return any(_expand(text, words).search(part) for part in (self._before(), self._after()))

    def _find(self, text: str, words: Mapping[str, str], part: str) -> dict[str, str]:
        if not words.keys() >= set(_NAMED.findall(text)):
            return {}
        found = _expand(text, words).search(part)
        return {name: word for name, word in found.groupdict().items() if word} if found else {}

    def has(self, pattern: Pattern, *, before: bool = True, after: bool = True) -> bool:
        parts = [self._line] if before and after else []
        parts += [self._before()] if before else []
        parts += [self._after()] if after else []
        return any(pattern.stands_in(part) for part in parts)

    def find_place(self) -> dict[str, str]:
        """Return what the traceback and pip's messages before this line say of where it happened.

        ``compiled`` is the package that pip was compiling, with its ``release`` if it is known, ``removed`` what pip
        replaced, and ``holder`` the package for which it did so.
        """
        before = self._before()
        told = dict(tracebacks.tell(before, self._after()))
        if compiled := _COMPILED.findall(before):
            folder, package, release = compiled[-1]
            told |= {"compiled": package, "release": release} if package else {"compiled": folder}
        if removed := _REMOVED.findall(before):
            told["removed"] = " ".join(f"{name}=={version}" for name, version in removed)
            told |= {"holder": asked[-1]} if (asked := _INSTALLED.findall(before)) else {}
        return told

    def _before(self) -> str:
        if "before" not in self._parts:
            text = self._text[max(0, self._start - BYTES) : self._start]
            self._parts["before"] = _decode(b"\n".join(text.split(b"\n")[-_LINES:]))
        return self._parts["before"]

    def _after(self) -> str:
        if "after" not in self._parts:
            text = self._text[self._end : self._end + BYTES]
            self._parts["after"] = _decode(b"\n".join(text.split(b"\n")[:_LINES]))
        return self._parts["after"]


def unescape(text: str) -> str:
    """Return a text with its escaped line ends and tabs as such, but for the folders of a path of Windows."""
    text = _ESCAPED_END.sub(lambda found: found[1] or ("\t" if found[0] == "\\t" else "\n"), text)
    return _QUOTE.sub('"', text)


def _expand(text: str, words: Mapping[str, str]) -> re.Pattern[str]:
    return re.compile(text.format_map({name: re.escape(word.lower()) for name, word in words.items()}))


def _decode(text: bytes) -> str:
    said = text.decode("utf-8", "replace")
    return unescape(said) if "\\n" in said else said
