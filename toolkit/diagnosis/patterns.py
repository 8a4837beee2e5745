"""Compiles the patterns of failures, and the filter that finds in a block of a log the lines worth reading.

A pattern is a part of a line, written as programs print it. Upper and lower case do not count.
``*`` stands for any text, ``<a|b>`` for one of several words, and ``^`` and ``$`` for the ends of the line.
Quotation marks of any kind count as one outside of ``<…|…>``, as compilers, web pages and releases write others. One
that ends a pattern may be missing at the end of a line. A word between grave accents may also stand there bare.
``{name}`` stands for a word that the cause and the remedy may repeat. ``{name:version}``, ``{name:number}`` and
``{name:tag}`` stand for such words alone, which ``words.yaml`` describes. ``{name=some text}`` stands for this text and
the rest of the line.
"""

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import accumulate, chain, filterfalse
from pathlib import Path
from typing import Any, Final, Generic, Protocol, TypeVar

from toolkit.diagnosis.languages import translate
from toolkit.versions.table import read_yaml

_PIECE: Final = re.compile(
    r"\*|<([^<>|]*(?:\|[^<>|]*)+)>|\{(\w+)(?::(\w+))?\}|`([^`*<>{}]+)`|\{(\w+)=([^{}]+)\}|[`'\"\u2018\u2019\u201c\u201d]"
)
_QUOTE: Final = r"[`'\"\u2018\u2019\u201c\u201d]"
_PLACEHOLDER: Final = re.compile(r"(?<!\w)x(?!\w)")
"""How the sample of a kind of words reads that is no word of its own."""
_TOOLS: Final = (
    *("bazelisk", "bazel", "docker", "ffmpeg", "mksquashfs", "nvcc", "nvidia-smi", "patchelf", "protoc", "python3"),
    *("python", "realpath", "squashfs"),
)
_ABSENT: Final = (": command not found", ": not found", " not found")
_WORDS: Final[Mapping[str, Mapping[str, Any]]] = {
    **read_yaml(Path(__file__).with_name("words.yaml").read_bytes()),
    "tool": {"is": rf"(?:{'|'.join(_TOOLS)}|python3?\.\d+)"},
    "absent": {
        "is": rf"(?:{'|'.join(_TOOLS)})(?={'|'.join(_ABSENT)})",
        "sample": "nvcc: command not found",
        "has": [f"{tool}{words}" for tool in _TOOLS for words in _ABSENT],
    },
}
"""The kinds of words in patterns, as `words.yaml` describes them."""
_ESCAPED: Final = re.compile(r"\\+[nrt\"'][\\nrt\"': ]*(?:unknown)?\Z")
"""How engines end a message of another program that they quote in one of their own."""
_COMMON: Final = re.compile(
    r"not found|(?<![a-z])(?:argument|attribute|but|channels|code|command|directory|does|environment|error|expected"
    r"|failed|fetch|file|found|function|gone|gradient|has|http|implementation|include|incompatible|installed|invalid|is"
    r"|line|make|manifest|memory|module|no|none|not|number|of|ops|or|out|packages|python|received|required|requires|site"
    r"|stalled|such|supported|tensorflow|to|unable|variable|version|wheel)(?![a-z])"
)
"""Words that ordinary logs have often."""
_LETTERS: Final = re.compile(r"[\w`\u2018\u2019(\[<>|&*#@!\\%]")
"""Letters, digits, and signs that ordinary logs have seldom."""
LEAST: Final = 2
"""Least weight of a text by which logs are searched: a common word alone is in too many lines."""
_ENOUGH: Final = 8
"""Weight from which on a text is rare."""
_PRODUCT: Final = 32
"""Most texts that are made of one part of a pattern."""
_LONGEST: Final = 12
"""Characters of a word that are looked for after its rare one."""
_FOLD: Final = bytes.maketrans(b"0123456789abcdef", b"0" * 16)
"""Takes digits and letters of hexadecimal numbers as one."""
_LEFT: Final = 3
"""Least length of a word without what is folded at its ends: a shorter one is in too many folded lines."""
_REMEMBERED: Final = 50_000
"""Folded lines that are remembered."""
_SHORT: Final = 1 << 18
"""Bytes of a text of which each word is looked for on its own."""
LONG: Final = 16 << 20
"""Bytes of logs after which it is worth to compare lines before they are searched."""
_BYTES: Final = "latin-1"
"""Takes each byte for a character: those of other alphabets begin with few different bytes."""
_RARE: Final = "*`\"&<+|%>#@j;()z[]q,=hykx'vw7b95648gd3:.21_0pmfu/s-acriltneo "
"""Characters of logs in lower case, the rarest first."""
_PREFIX: Final = re.compile(
    r"(?:\s|[│|>\"]|\[rank\d+\]:|\[\d+,\d+\]<std(?:err|out)>:"
    r"|#\d+ \d+\.\d+|\[?\d{4}-\d\d-\d\d[t ][\d:.,+-]+z?\]?|\[?\d\d:\d\d:\d\d(?:[.,]\d+)?\]?"
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
            elif re.fullmatch(_QUOTE, match[0]):
                sources[-1] += _QUOTE
            elif match[4] is not None:
                sources[-1] += f"{_QUOTE}?{re.escape(match[4].lower())}{_QUOTE}?"
            elif match[5] is not None:
                sources[-1] += rf"(?P<{match[5]}>{re.escape(match[6].lower())}(?:.*[^\s.])?)"
            elif match[1] is not None:
                sources[-1] += f"(?:{'|'.join(re.escape(word.lower()) for word in match[1].split('|'))})"
            else:
                sources[-1] += f"(?P<{match[2]}>{_WORDS[match[3] or 'word']['is']})"
        sources[-1] += re.escape(text[position:].lower())
        sources[-1] += r"\s*\Z" if self.text.endswith("$") else ""
        return tuple(re.compile(source) for source in sources)

    @cached_property
    def _cut(self) -> re.Pattern[str] | None:
        """The last part without the quotation mark at its end, which who copies a line may lose."""
        last = self._parts[-1].pattern
        return re.compile(rf"{last.removesuffix(_QUOTE)}\s*\Z") if last.endswith(f"){_QUOTE}") else None

    @cached_property
    def _inner(self) -> str:
        return translate(self.text.removeprefix("^").removesuffix("$"))

    @property
    def sample(self) -> str:
        """A line that matches."""
        return _PIECE.sub(_give_sample, self._inner)

    @property
    def headline(self) -> str:
        """The line as people see it, with ``…`` for what differs from log to log."""
        return re.sub(r" {2,}", " ", _PIECE.sub(_give_headline, self._inner)).strip()

    @property
    def _anchored(self) -> bool:
        return self.text.startswith("^")

    @cached_property
    def literals(self) -> tuple[str, ...]:
        """Texts in lower case of which one stands in every line that matches: those that logs have most seldom."""
        plain = self.text.removeprefix("^").removesuffix("$")
        best = _choose(list(_list_runs(plain))) if _PIECE.search(plain) else (plain.lower(),)
        if plain == self._inner:
            return best
        runs = list(_list_runs(self._inner))  # a run in more languages is not more usual
        return next((run for run in runs if run[0] == best[0]), None) or _choose(runs)

    def match(self, line: str, lowered: str) -> dict[str, str] | None:
        """Return the words that the pattern names if it stands in a line, else None."""
        for word in self.literals:  # any() would take three times as long, and most patterns end here
            if word in lowered:
                break
        else:
            return None
        words: dict[str, str] = {}
        position = 0
        if self._anchored and (prefix := _PREFIX.match(lowered)):
            position = prefix.end()
        for number, part in enumerate(self._parts):
            last = number == len(self._parts) - 1
            for one in (part, *((self._cut,) if last and self._cut else ())):
                found = one.match(lowered, position) if self._anchored and not number else one.search(lowered, position)
                if found:
                    break
            if not found:
                return None
            position = found.end()
            words |= {name: _close(line[slice(*found.span(name))]) for name in part.groupindex}
        return words

    def stands_in(self, text: str) -> bool:
        """Return whether the pattern stands in one of the lines of a text in lower case."""
        return any(word in text for word in self.literals) and any(
            self.match(line, line) is not None for line in text.split("\n")
        )


def _close(word: str) -> str:
    """Return a word without what is not of the message: escapes of engines at its end, half of a pair of accents."""
    word = _ESCAPED.sub("", word)
    return word.replace("`", "") if word.count("`") % 2 else word


def _give_sample(piece: re.Match[str]) -> str:
    if re.fullmatch(_QUOTE, piece[0]):
        return piece[0]
    return piece[1].split("|")[0] if piece[1] else piece[4] or piece[6] or _WORDS.get(piece[3], {}).get("sample", "x")


def _give_headline(piece: re.Match[str]) -> str:
    if piece[0] == "*":
        return " … "
    sample = _give_sample(piece)
    return "…" if piece[2] and _PLACEHOLDER.search(sample) else sample


def _list_runs(text: str) -> Iterator[tuple[str, ...]]:
    """Yield for each part without free words the texts of which one stands there."""
    run: tuple[str, ...] = ("",)
    position = 0
    inner = text.lower()
    for match in _PIECE.finditer(inner):
        run = tuple(word + inner[position : match.start()] for word in run)
        position = match.end()
        words = tuple(match[1].split("|")) if match[1] is not None else tuple(_WORDS.get(match[3], {}).get("has", ()))
        words = (match[6],) if match[6] is not None else words
        joined = tuple(start + word for start in run for word in words)
        if match[1] is not None and len(joined) <= _PRODUCT:
            run = joined
            continue
        yield joined if 0 < len(joined) <= _PRODUCT else run
        if other := words or ((match[4],) if match[4] else ()):
            yield other
        run = words if match[1] is not None else ("",)
    yield tuple(word + inner[position:] for word in run)


def _choose(runs: list[tuple[str, ...]]) -> tuple[str, ...]:
    return runs[0] if len(runs) == 1 else max(runs, key=_judge)


def _judge(run: tuple[str, ...]) -> tuple[int, int, int]:
    return min(_ENOUGH, *map(weigh, run)), -len(run), len(run[0])


def weigh(text: str) -> int:
    """Return how seldom logs have a text in lower case: how many letters it has, where a common word counts as one."""
    return len(_LETTERS.findall(_COMMON.sub("0", text)))


@dataclass(frozen=True)
class Text:
    """A part of a log, in lower case."""

    lowered: bytes

    @cached_property
    def folded(self) -> list[bytes]:
        """Its lines, with digits and letters of hexadecimal numbers taken as one."""
        return self.lowered.translate(_FOLD).split(b"\n")

    @cached_property
    def distinct(self) -> frozenset[bytes]:
        return frozenset(self.folded)


T = TypeVar("T")


class Filter(Generic[T]):
    """Finds in a log in lower case where a line may match a pattern, and says of what the pattern is."""

    def __init__(self, patterns: Iterable[tuple[Pattern, T]]) -> None:
        self._owners: dict[str, dict[int, T]] = {}
        self._searched = 0
        for pattern, owner in patterns:
            for word in pattern.literals:
                self._owners.setdefault(word, {})[id(owner)] = owner

    def open(self, text: "Text") -> "Search[T]":
        """Return what searches a text. In a short one each word is looked for; to compile all of them takes longer."""
        size = len(text.lowered)
        if size <= _SHORT:
            return _Words(text.lowered, self._words)
        self._searched += size
        suspects = self._lines.list_suspects(text) if self._searched > LONG else [(0, size)]
        return _Compiled(text.lowered, self, suspects)

    @cached_property
    def _words(self) -> Mapping[bytes, Mapping[int, T]]:
        return {word.encode(): owners for word, owners in self._owners.items()}

    @cached_property
    def expression(self) -> "_Expression[T]":
        return _Expression(self._owners)

    @cached_property
    def _lines(self) -> "_Lines":
        return _Lines(self._owners)


class Search(Protocol[T]):
    def find(self, position: int) -> tuple[int, int] | None:
        """Return the place of the first word at or after a position."""

    def list_owners(self, line: bytes) -> list[T]:
        """Return what the patterns are of that may match a line, each once."""


class _Words(Generic[T]):
    def __init__(self, text: bytes, owners: Mapping[bytes, Mapping[int, T]]) -> None:
        self._owners = {word: found for word, found in owners.items() if word in text}
        self._places = sorted((at, at + len(word)) for word in self._owners for at in _list_places(text, word))

    def find(self, position: int) -> tuple[int, int] | None:
        at = bisect_left(self._places, (position, 0))
        return self._places[at] if at < len(self._places) else None

    def list_owners(self, line: bytes) -> list[T]:
        found: dict[int, T] = {}
        for word in sorted((word for word in self._owners if word in line), key=line.find):
            found |= self._owners[word]
        return list(found.values())


class _Compiled(Generic[T]):
    def __init__(self, text: bytes, words: Filter[T], suspects: list[tuple[int, int]]) -> None:
        self._text, self._words = text, words
        self._suspects = suspects[::-1]

    def find(self, position: int) -> tuple[int, int] | None:
        while self._suspects:
            start, end = self._suspects[-1]
            if match := self._words.expression.search(self._text, max(position, start), end):
                return match.span()
            self._suspects.pop()
        return None

    def list_owners(self, line: bytes) -> list[T]:
        return self._words.expression.list_owners(line)


class _Lines:
    """Tells lines that need no search, because one that has only other digits or letters from a to f had no word.

    Most lines of a long log are so, and to compare is quicker than to search.
    """

    def __init__(self, words: Iterable[str]) -> None:
        folded = {word: word.encode().translate(_FOLD).decode() for word in words}
        self._weak = [word.encode() for word, left in folded.items() if len(left.strip("0")) < _LEFT]
        self._search = _Expression({left: {} for left in folded.values() if len(left.strip("0")) >= _LEFT}).search
        self._known: dict[bool, set[bytes]] = {True: set(), False: set()}  # lines by whether a word may stand in them

    def list_suspects(self, text: Text) -> list[tuple[int, int]]:
        """Return the parts of a text in which a word may stand."""
        if any(word in text.lowered for word in self._weak):
            return [(0, len(text.lowered))]
        lines = text.folded
        suspect, clear = self._known[True], self._known[False]
        if len(clear) + len(suspect) > _REMEMBERED:
            clear.clear()
            suspect.clear()
        new = text.distinct - clear - suspect
        if 2 * len(new) > len(lines):
            return [(0, len(text.lowered))]
        for line in new:
            self._known[self._search(line) is not None].add(line)
        if suspect.isdisjoint(text.distinct):
            return []
        starts = accumulate((len(line) + 1 for line in lines), initial=0)
        return [(start, start + len(line)) for start, line in zip(starts, lines, strict=False) if line in suspect]


class _Expression(Generic[T]):
    """Looks for each word at a rare character of it, because the search skips all other characters quickly.

    What stands before that character is compared last.
    """

    def __init__(self, owners: Mapping[str, Mapping[int, T]]) -> None:
        owners = {word.encode().decode(_BYTES): found for word, found in owners.items()}
        # A word that contains another is found by the shorter one.
        longer = _find_longer(list(owners))
        words = owners.keys() - {each for holders in longer.values() for each in holders}
        leads = _choose_leads(words)
        self._tails: dict[str, dict[int, T]] = {}
        wholes: list[tuple[str, str]] = []
        for word in sorted(words):
            begin = min((at for at, letter in enumerate(word) if letter in leads), key=partial(_rank_pair, word))
            whole = word[: begin + _LONGEST]
            wholes.append((whole[begin:], whole))
            found = self._tails.setdefault(whole[begin:], {})
            for each in (word, *longer[word]):
                found |= owners[each]
        self._known: dict[bytes, list[T]] = {}
        self.search = re.compile(_join(sorted(set(wholes)), 0).encode(_BYTES)).search

    def list_owners(self, line: bytes) -> list[T]:
        owners: dict[int, T] = {}
        position = 0
        while match := self.search(line, position):
            owners |= {id(owner): owner for owner in self._look_up(match[0])}
            position = match.start() + 1
        return list(owners.values())

    def _look_up(self, tail: bytes) -> list[T]:
        """Return what may stand where a word was found: this one, and those that begin or go on as it does."""
        if tail not in self._known:
            word = tail.decode(_BYTES)
            found: dict[int, T] = {}
            for other, owners in self._tails.items():
                if other.startswith(word) or word.startswith(other):
                    found |= owners
            self._known[tail] = list(found.values())
        return self._known[tail]


def _list_places(text: bytes, word: bytes) -> Iterator[int]:
    at = text.find(word)
    while at >= 0:
        yield at
        at = text.find(word, at + 1)


def _find_longer(words: list[str]) -> dict[str, list[str]]:
    """Return for each word the others that contain it."""
    holders: dict[str, dict[str, None]] = {}  # words by each four letters in them
    for word in words:
        for at in range(len(word) - 3):
            holders.setdefault(word[at : at + 4], {})[word] = None
    return {
        word: [other for other in holders.get(word[:4], words) if word in other and other != word] for word in words
    }


def _choose_leads(words: set[str]) -> set[str]:
    """Return a few rare characters of which each word has one, of another alphabet where it has such."""
    letters = [frozenset(filterfalse(str.isascii, word)) or frozenset(word) for word in words]
    leads: set[str] = set()
    rest = letters
    while rest:
        counts = Counter(chain.from_iterable(rest))
        best = max(sorted(counts), key=lambda letter: counts[letter] / 1.12 ** _rank(letter))
        leads.add(best)
        rest = [each for each in rest if best not in each]
    for letter in sorted(leads, key=_rank, reverse=True):
        if all(not each.isdisjoint(leads - {letter}) for each in letters):
            leads.discard(letter)
    return leads


def _join(words: list[tuple[str, str]], depth: int) -> str:
    """Return an expression for sorted words, each with the whole that must stand there, from a depth on."""
    branches: list[str] = []
    ended = [whole for tail, whole in words if len(tail) == depth]
    for letter in dict.fromkeys(tail[depth] for tail, _ in words if len(tail) > depth):
        below = [(tail, whole) for tail, whole in words if len(tail) > depth and tail[depth] == letter]
        branches.append(re.escape(letter) + _join(below, depth + 1))
    branches += [f"(?<={re.escape(whole)})" for whole in ended]
    return branches[0] if len(branches) == 1 else f"(?:{'|'.join(branches)})"


def _rank(character: str) -> int:
    return max(_RARE.find(character), 0)


def _rank_pair(word: str, at: int) -> tuple[int, int]:
    """Return how usual a character of a word is together with the next one, and its place: rare pairs are quick."""
    return _rank(word[at]) + (_rank(word[at + 1]) if at + 1 < len(word) else len(_RARE)), at
