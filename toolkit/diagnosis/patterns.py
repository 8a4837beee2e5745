"""Compiles the patterns of failures.yaml, and the filter that finds in a block of a log the lines worth reading.

A pattern is a part of a line, written as programs print it. Upper and lower case do not count. ``*`` stands for any text,
``<a|b>`` for one of several words, ``^`` and ``$`` for the ends of the line, ``{name}`` for a word that the cause and the
remedy may repeat. ``{name:version}``, ``{name:number}`` and ``{name:tag}`` stand for such words alone.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

_PIECE: Final = re.compile(r"\*|<([^<>|]*(?:\|[^<>|]*)+)>|\{(\w+)(?::(\w+))?\}")
_KINDS: Final[Mapping[str, str]] = {
    "word": r"\w(?:[\w.+/@:-]*\w)?",
    "version": r"\d+(?:\.\d+)+\w*",
    "number": r"\d+",
    "tag": r"[\w.]+",
    "exception": r"[\w.]*(?:error|exception)",
    "gpu": r"(?:sm|compute)_\d+[af]?",
    "card": r"\w[\w .()/-]*",
}
_SHORTEST: Final = 4
"""A filter does not look for less than so many characters."""
_LONGEST: Final = 14
_RARE: Final = "qzj`xkv'wyb:;hgpufmdcl(#)[]_=\"-snrtoiae/.0123456789 "
"""Characters of logs in lower case, the rarest first: the filter is fast if few positions can begin a word of it."""
_PREFIX: Final = re.compile(
    r"(?:\s|[│|>\"]|#\d+ \d+\.\d+|\[?\d{4}-\d\d-\d\d[t ][\d:.,+-]+z?\]?|\[?\d\d:\d\d:\d\d(?:[.,]\d+)?\]?"
    r"|\[\s*\d+\.\d+\]|[\w.-]+(?:-\d+)?\s+\|)+"
)
"""What engines, schedulers and CI put in front of each line."""


@dataclass(frozen=True)
class Pattern:
    text: str

    @cached_property
    def _parts(self) -> tuple[re.Pattern[str], ...]:
        """Regular expressions of the parts between the ``*``. Searched one after the other, they take linear time."""
        sources = [""]
        position = 0
        text = self._inner
        for match in _PIECE.finditer(text):
            sources[-1] += re.escape(text[position : match.start()].lower())
            position = match.end()
            if match[0] == "*":
                sources.append("")
            elif match[1] is not None:
                sources[-1] += f"(?:{'|'.join(re.escape(word.lower()) for word in match[1].split('|'))})"
            else:
                sources[-1] += f"(?P<{match[2]}>{_KINDS[match[3] or 'word']})"
        sources[-1] += re.escape(text[position:].lower())
        sources[-1] += r"\s*\Z" if self.text.endswith("$") else ""
        return tuple(re.compile(source) for source in sources)

    @property
    def _inner(self) -> str:
        return self.text.removeprefix("^").removesuffix("$")

    @property
    def _anchored(self) -> bool:
        return self.text.startswith("^")

    @cached_property
    def literals(self) -> tuple[str, ...]:
        """Texts in lower case of which one stands in every line that matches."""
        best: tuple[str, ...] = ()
        runs: list[tuple[str, ...]] = []
        position = 0
        for match in _PIECE.finditer(self._inner):
            runs.append((self._inner[position : match.start()],))
            if match[1] is not None:
                runs.append(tuple(match[1].split("|")))
            position = match.end()
        runs.append((self._inner[position:],))
        for run in runs:
            if len(min(run, key=len)) > (len(min(best, key=len)) if best else 0):
                best = run
        return tuple(word.lower() for word in best)

    def match(self, line: str, lowered: str) -> dict[str, str] | None:
        """Return the words that the pattern names if it stands in a line, else None."""
        if not any(word in lowered for word in self.literals):
            return None
        words: dict[str, str] = {}
        position = 0
        if self._anchored and (prefix := _PREFIX.match(lowered)):
            position = prefix.end()
        for number, part in enumerate(self._parts):
            found = part.match(lowered, position) if self._anchored and not number else part.search(lowered, position)
            if not found:
                return None
            position = found.end()
            words |= {name: line[slice(*found.span(name))] for name in part.groupindex}
        return words

    def stands_in(self, text: str) -> bool:
        """Return whether the pattern stands in one of the lines of a text in lower case."""
        return any(word in text for word in self.literals) and any(
            self.match(line, line) is not None for line in text.split("\n")
        )


def compile_filter(patterns: Iterable[Pattern]) -> re.Pattern[bytes]:
    """Return an expression that matches in lower case wherever a line may match one of the patterns."""
    words = {_choose(word) for pattern in patterns for word in pattern.literals}
    # A word that contains another is found by the shorter one.
    words = {word for word in words if not any(other != word and other in word for other in words)}
    groups: dict[str, list[str]] = {}
    for word in sorted(words):
        groups.setdefault(word[0], []).append(word[1:])
    source = "|".join(
        f"{re.escape(first)}(?:{'|'.join(re.escape(rest) for rest in sorted(rests))})"
        for first, rests in sorted(groups.items())
    )
    return re.compile(source.encode())


def _choose(word: str) -> str:
    """Return the part of a word to look for: one that begins with a rare character, and is long enough."""
    most = len(word) - min(len(word), 8)
    starts = range(most + 1) if len(word) > _SHORTEST else (0,)
    begin = min(starts, key=lambda at: (_rank(word[at]), at))
    return word[begin : begin + _LONGEST]


def _rank(character: str) -> int:
    at = _RARE.find(character)
    return at if at >= 0 else 0
