"""Scans logs for the failures of the table, once, in bounded memory. It executes and keeps nothing of a log."""

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import BinaryIO, Final, TypeVar

from toolkit.base.errors import UsageError
from toolkit.diagnosis import alarms, done, reading, surroundings, tracebacks
from toolkit.diagnosis.patterns import Filter, Pattern, Text
from toolkit.diagnosis.reading import Block
from toolkit.diagnosis.series import Losses
from toolkit.diagnosis.specifiers import skip_wish
from toolkit.diagnosis.surroundings import Near
from toolkit.diagnosis.table import Fact, FailureTable, Row
from toolkit.versions.table import affects

_KEPT: Final = 5
"""Lines that are kept of a failure."""
_ENOUGH: Final = 20
"""How often the same message is looked at."""
_FIRST_LINES: Final = 50_000
"""Facts are read in the first lines, and in those that show a failure."""
_ERRORS: Final = 5
_ALARMS: Final = (b"error", b"fail", b"fatal", b"exception", b"dumped")
"""Without one of these words, a block between the first lines and the last is not searched for other errors."""
_MESSAGES: Final = 200_000
"""Different messages that are remembered."""
_DIGITS: Final = b"0123456789"
_STOPPED: Final = re.compile(
    r"^\s*(?:error: )?((?:[A-Za-z]:)?[^\s:(]+?)(?::\d+(?::\d+)?|\(\d+(?:,\d+)?\)): (?:fatal )?error\b", re.IGNORECASE
)
"""A message of a compiler, behind the file in which it stopped."""
_QUOTED: Final = 5
"""Most lines of a log that somebody quotes because something failed."""
_LAST_LINES: Final = 3
_OTHERS: Final = ("JAX", "PyTorch", "CuPy", "numba")
"""Other frameworks."""
_OURS: Final = (b"tensorflow", b"keras", b"tf.config.", b"tf.test.", b"tf.data.", b"tf.function", b"tf.__version__")
"""How a log names TensorFlow."""
_ABSENT: Final = "no TensorFlow"
"""The fact that a log names other packages or frameworks alone."""

_OF_JAXLIB: Final = b"external/org_tensorflow/tensorflow/"

T = TypeVar("T")


@dataclass(frozen=True)
class Line:
    number: int
    text: str
    source: str = ""  # name of the log, if there are several

    def to_json(self) -> dict[str, int | str]:
        return {"number": self.number, "text": self.text, **({"file": self.source} if self.source else {})}


@dataclass
class Match:
    row: Row
    words: Mapping[str, str]  # that its pattern names
    at: tuple[int, int]  # number of the log, and of the line
    lines: list[Line] = field(default_factory=list)
    count: int = 0
    told: list[Mapping[str, str]] = field(default_factory=list)  # the words of each line, up to a number of lines
    places: set[tuple[int, int]] = field(default_factory=set)  # of all its lines, as in ``at``
    on_the_way: bool = False  # whether all lines only show where an error was raised: frames, and what they quote


@dataclass
class Scan:
    table: FailureTable
    matches: dict[str, Match] = field(default_factory=dict)  # by id
    facts: dict[str, str] = field(default_factory=dict)
    errors: list[Line] = field(default_factory=list)  # the first lines that look like an error, and the last
    origin: tuple[str, ...] = ()  # where the last of these was raised: in the program, and in a library
    ran: dict[str, None] = field(default_factory=dict)  # commands that stand in the logs
    lines: int = 0
    _logs: int = 0
    _shown: dict[str, tuple[int, Line]] = field(default_factory=dict)  # number of the log, and the line of each fact
    _ours: bool = False  # whether TensorFlow is named
    _others: bool = False  # whether files of packages are named
    _seen: dict[int, int] = field(default_factory=dict)
    _explained: set[int] = field(default_factory=set)  # lines of this block that show a failure
    _losses: Losses = field(default_factory=Losses)  # of this log

    @property
    def ours(self) -> bool:
        """Whether a log names TensorFlow."""
        return self._ours

    def feed(self, stream: BinaryIO, source: str = "") -> None:
        """Read one log."""
        self._logs += 1
        self._seen.clear()
        self._losses = Losses()
        before = b""
        block: Block | None = None
        for following in reading.read(stream):
            if block is not None:
                self._take(block, before, following.text, source, last=False)
                before = block.text[-surroundings.BYTES :]
            block = following
        if block is not None:
            self._take(block, before, b"", source, last=True)
            self.lines += block.first + block.numbered.rstrip(b"\n").count(b"\n")
        self._judge_losses(source)
        self.facts.pop(_ABSENT, None)
        if not self._ours and (self._others or not self.facts.keys().isdisjoint(_OTHERS)):
            self.facts[_ABSENT] = "yes"

    def _take(self, block: Block, before: bytes, after: bytes, source: str, *, last: bool) -> None:
        self._explained.clear()
        text = Text(lowered := block.text.lower())
        # jaxlib names its own sources by the tree of TensorFlow in which they once were.
        told = lowered.replace(_OF_JAXLIB, b"") if _OF_JAXLIB in lowered else lowered
        self._ours = self._ours or any(name in told for name in _OURS)
        self._others = self._others or b"-packages" in lowered
        around = before.lower() + lowered + after[: surroundings.BYTES].lower()

        def show(found: _Found, rows: list[Row]) -> None:
            near = Near(around, len(before) + found.start, len(before) + found.end)
            if tracebacks.quotes_source(found.raw):
                return
            matched = [self._match(row, found, near, source) for row in rows]
            if any(matched):
                self._remember(found.key, 1)  # in other surroundings it may mean something else
                self._learn(source, found, list(self.table.facts))

        self._search(block, text, self.table.filter, show)
        self._losses.read(block, lowered)
        if block.first <= _FIRST_LINES:
            self._search(block, text, self.table.fact_filter, partial(self._learn, source))
        if block.first <= done.LINES:
            self._note_commands(block.text)
        wanting = len(self.errors) < _ERRORS and (
            block.first <= _FIRST_LINES or any(word in lowered for word in _ALARMS)
        )
        if last or wanting:
            suspect = partial(self._suspect, source, before, block.text)
            self._search(block, text, self.table.error_filter, suspect, numbers=False)
        if last:
            self._look_at_end(source, before, block)

    def _note_commands(self, text: bytes) -> None:
        """Keep the commands that stand in the first lines of a block."""
        first = b"\n".join(text.split(b"\n", done.LINES)[: done.LINES]).decode("utf-8", "replace")
        for part in {first, surroundings.unescape(first)} if "\\n" in first else (first,):
            self.ran.update(dict.fromkeys(itertools.islice(done.read(part), done.MOST - len(self.ran))))

    def _judge_losses(self, source: str) -> None:
        """Keep what the losses of a log show together."""
        for name, words, (number, text) in self._losses.judge():
            line = Line(number, text.decode("utf-8", "replace").strip(), source)
            match = self.matches.setdefault(
                name, Match(self.table.rows[name], {}, (self._logs, number), [line], 1, [words])
            )
            match.words = {**words, **match.words}

    def _look_at_end(self, source: str, before: bytes, block: Block) -> None:
        """Keep the last line of a log that reads like a failure and shows none that is known."""
        ends = [match.span() for match in re.finditer(rb"[^\n]*\S[^\n]*", block.text[-surroundings.BYTES :])]
        shift = max(0, len(block.text) - surroundings.BYTES)
        # Nobody shows few lines without a reason: in them any word of a failure counts.
        quoted = not shift and block.first <= 1 and len(ends) <= _QUOTED and not self.matches and not self.errors
        ends, fails = (ends, alarms.shows_failure) if quoted else (ends[-_LAST_LINES:], alarms.ends_in_failure)
        for start, end in ((shift + start, shift + end) for start, end in reversed(ends)):
            number = block.first + block.numbered.count(b"\n", 0, start)
            text = block.text[start:end].decode("utf-8", "replace")
            if number in self._explained or (self.errors and self.errors[-1].number >= number):
                return
            if fails(text):
                self._keep(Line(number, text.strip(), source), before, block.text, start)
                return

    def _search(
        self,
        block: Block,
        text: Text,
        words: Filter[T],
        take: Callable[["_Found", list[T]], None],
        *,
        numbers: bool = True,
    ) -> None:
        """Call ``take`` for each line in which the filter finds something, unless it was read often enough.

        ``numbers``: a message with other numbers is another message.
        """
        position = counted = 0
        number = block.first
        search, lowered = words.open(text), text.lowered
        while place := search.find(position):
            begin, stop = place
            start = lowered.rfind(b"\n", 0, begin) + 1
            end = lowered.find(b"\n", stop)
            end = len(lowered) if end < 0 else end
            position = end
            if end - start > 2 * surroundings.BYTES:  # a part of a long line is enough
                start, end = max(start, begin - surroundings.BYTES), min(end, stop + surroundings.BYTES)
                position = end
            before = lowered[start:begin].translate(None, _DIGITS)
            message = lowered[begin:end]
            key = hash((id(words), before, message if numbers else message.translate(None, _DIGITS)))
            seen = self._seen.get(key, -1)
            if seen == 0 or seen >= _ENOUGH:
                continue
            self._remember(key, max(seen, 0) + (seen > 0))
            number += block.numbered.count(b"\n", counted, start)
            counted = max(counted, start)
            line = lowered[start:end]
            raw = block.text[start:end].decode("utf-8", "replace")
            take(_Found(raw, line.decode("utf-8", "replace"), number, start, end, key), search.list_owners(line))

    def _remember(self, key: int, count: int) -> None:
        if key in self._seen or len(self._seen) < _MESSAGES:
            self._seen[key] = max(self._seen.get(key, 0), count)

    def _match(self, row: Row, found: "_Found", near: Near, source: str) -> bool:
        """Keep a failure that a line shows. Return whether the line has one of its patterns, whatever stands near."""
        words = found.find(row.sign.lines)
        if words is None:
            return False
        if not _fits(row.sign.when, words) or not near.allows(row.sign, words):
            return True
        words = {**near.tell(row.sign, words), **words}
        if stopped := _STOPPED.match(found.raw):
            words["stopped"] = stopped[1]
        name = f"{row.id} {words[row.sign.each].lower()}" if words.get(row.sign.each) else row.id
        match = self.matches.setdefault(name, Match(row, words, (self._logs, found.number), on_the_way=True))
        if len(words) > max(map(len, match.told), default=0):  # a later line says more
            match.words = words
        if not match.count:
            match.words = {**near.find_place(), **match.words}
        match.count += 1
        match.places.add((self._logs, found.number))
        match.on_the_way = match.on_the_way and tracebacks.is_on_the_way(found.raw)
        if len(match.told) < _ENOUGH:
            match.told.append(words)
        self._explained.add(found.number)
        if len(match.lines) < _KEPT:
            match.lines.append(Line(found.number, found.raw.strip(), source))
        return True

    def tell_circumstances(self) -> Iterator[tuple[str, Match]]:
        """Yield the id of each failure that a fact of the log may explain, and where the log says the fact."""
        for row in self.table.rows.values():
            if name := next((name for name in row.facts if name in self._shown), ""):
                log, line = self._shown[name]
                yield row.id, Match(row, {"fact": self.facts[name]}, (log, line.number), [line], 1)

    def _learn(self, source: str, found: "_Found", facts: list[Fact]) -> None:
        for fact in facts:
            if fact.name not in self.facts:
                line, words = found, found.find(fact.lines)
                while words is not None and (rest := skip_wish(line.raw, words.get("value", ""))) is not None:
                    line = replace(line, raw=rest, lowered=rest.lower())
                    words = line.find(fact.lines)
                if words is not None:
                    number = f"{words['major']}.{words['minor']}" if "major" in words else "yes"
                    self.facts[fact.name] = words.get("value", number)
                    self._shown[fact.name] = (self._logs, Line(found.number, found.raw.strip(), source))

    def _suspect(self, source: str, before: bytes, text: bytes, found: "_Found", patterns: list[Pattern]) -> None:
        if found.number in self._explained or alarms.is_measured(found.raw):
            return
        if all(found.match(pattern) is None for pattern in patterns):
            return
        self._keep(Line(found.number, found.raw.strip(), source), before, text, found.start)

    def _keep(self, line: Line, before: bytes, text: bytes, start: int) -> None:
        self.errors[_ERRORS - 1 :] = [line]  # the first ones, and the last
        above = (before if start < surroundings.BYTES else b"") + text[max(0, start - surroundings.BYTES) : start]
        self.origin = tracebacks.find_origin(above.decode("utf-8", "replace")) or self.origin


@dataclass(frozen=True)
class _Found:
    """A line in which the filter found something."""

    raw: str
    lowered: str
    number: int
    start: int  # start, end: place in the block
    end: int
    key: int

    def match(self, pattern: Pattern) -> dict[str, str] | None:
        for raw, lowered in self._variants():
            if (words := pattern.match(raw, lowered)) is not None:
                return words
        return None

    def find(self, patterns: Iterable[Pattern]) -> dict[str, str] | None:
        return next((words for pattern in patterns if (words := self.match(pattern)) is not None), None)

    def _variants(self) -> Iterator[tuple[str, str]]:
        yield self.raw, self.lowered
        if "\\" in self.raw:  # a notebook or another JSON file: a string of it may hold several lines
            for part in surroundings.unescape(self.raw).split("\n"):
                yield part, part.lower()


def _fits(when: Mapping[str, str], words: Mapping[str, str]) -> bool:
    if not when:
        return True
    try:
        numbers = {name: _plain(word) for name, word in words.items()}
        return affects(
            {name: span.format(**numbers) for name, span in when.items()}, {name: [numbers[name]] for name in when}
        )
    except (KeyError, UsageError):
        return False


def _plain(version: str) -> str:
    """Return the numbers of a version such as ``2.9.0rc1``."""
    match = re.match(r"\d{1,6}(?:\.\d{1,6}){0,3}", version)
    return match[0] if match else version


def scan(table: FailureTable, logs: Iterable[tuple[str, BinaryIO]]) -> Scan:
    found = Scan(table)
    for source, stream in logs:
        found.feed(stream, source)
    return found
