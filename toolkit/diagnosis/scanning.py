"""Scans logs for the failures of the table, once, in bounded memory. It executes and keeps nothing of a log."""

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import BinaryIO, Final, TypeVar

from toolkit.base.errors import UsageError
from toolkit.diagnosis import done, reading
from toolkit.diagnosis.patterns import Filter, Pattern, Text
from toolkit.diagnosis.reading import Block
from toolkit.diagnosis.series import Losses
from toolkit.diagnosis.table import Fact, FailureTable, Row, Sign
from toolkit.versions.table import affects

_NEAR_LINES: Final = 60
_NEAR_BYTES: Final = 16 << 10
"""How far context is looked for."""
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
_FRAME: Final = re.compile(r"""(?im)file "?([^"\n,]+?)"?(?:, line |:)(\d+)(?:$|,? in ([\w.<>]+))""")
"""A frame of a traceback, as Python or IPython prints it."""
_CELL: Final = re.compile(r"(?m)^(?:│ )?\[?([^\s:]+\.py)\]?(?:\(\S*\))?(?P<line>:\d+:?)? in ([<\w]+)")
"""A frame of a traceback, as Colab, older notebooks, rich and pytest print it."""
_SOURCE: Final = re.compile(
    r"\s*(?:[│|]\s*)?(?:(?:-+>|❱)?\s*\d+\s[│\s][│\s]*(?:raise\b|(?:f|r|fr|rf)?[\"'])|raise\b.*[\"'].*\{\w)",
    re.IGNORECASE,
)
"""A line of source that a traceback quotes with a text of a message: behind its number, or with a value to fill in."""
_RAISING: Final = re.compile(r"raise\b|.*because of the following error(?: \([^()]*\))?:\s*$", re.IGNORECASE)
"""A statement that raises, or a message that says no more than that the next line is the cause."""
_QUOTING: Final = "> \t│|"
"""What stands before lines that somebody quotes, or before those of a frame."""
_STOPPED: Final = re.compile(
    r"^\s*(?:error: )?((?:[A-Za-z]:)?[^\s:(]+?)(?::\d+(?::\d+)?|\(\d+(?:,\d+)?\)): (?:fatal )?error\b", re.IGNORECASE
)
"""A message of a compiler, behind the file in which it stopped."""
_REMOVED: Final = re.compile(r"(?m)^\s*uninstalling ([\w.-]+?)-(\d[\w.]*):?$")
_INSTALLED: Final = re.compile(r"installing collected packages: [^\n]*?([\w.-]+)\s*$", re.MULTILINE)
"""What pip installs. The package that was asked for stands last, behind what it needs."""
_TRACEBACK: Final = "traceback (most recent call last)"
_LIBRARY: Final = re.compile(
    r"[/\\](?:site|dist)-packages[/\\]|[/\\]lib[/\\](?:python)?\d|<frozen|python\d+[/\\]lib[/\\]", re.IGNORECASE
)
"""A file that is not the user's."""
_PACKAGE: Final = re.compile(r"(?:site|dist)-packages[/\\]((\w+)[/\\][\w/\\]*)", re.IGNORECASE)
_GETTER: Final = re.compile(r"(?:[\w<>]+\.)*(?:_*getattr(?:ibute)?_*|_\w*deprecat\w*)")
"""A function that answers for a name that a module or object does not have, and so raises what its caller asked for."""
_GENERATED: Final = re.compile(r"[^/\\]+_pb2(?:_grpc)?\.py$")
_OF_PROTOBUF: Final = re.compile(r"[/\\]google[/\\](?:protobuf|_upb)[/\\]")
_COMPILED: Final = re.compile(
    r"[/\\]pip-(?:install|wheel)-\w+[/\\]([\w.-]+?)(?:_[0-9a-f]{32})?[/\\]"
    r"|(?m:^ *(?:Using cached|Downloading) ([\w.-]+?)-(\d[\w.]*?)\.(?:zip|tar\.gz)\b)",
    re.IGNORECASE,
)
"""The folder into which pip unpacks the sources of a package, to compile them, and the file in which they come."""
_STATEMENT: Final = re.compile(r"(?m)^(?:-+> *\d+ |[│ ]*❱ *\d+ [│ ]*|(?= {4}))([^\n]*\w[^\n]*)")
"""A line of source that a traceback quotes: behind the arrow of a notebook or of rich, or by its indent."""
_IMPORT: Final = re.compile(
    r"from (\.*[a-z_][\w.]*|\.+) import [^\n]*(?:\n *\^+)?\n(?:[^\n]{0,40}\n){0,2}\Z", re.IGNORECASE
)
"""The last line of a traceback that ends at an import: before Python 3.7 the message does not name the module."""
_ENDING: Final = re.compile(
    r"(?<!\b0 )(?<!\b[Nn]o )(?:\b[A-Z]\w*(?:Error|Exception)\b|\b[Ee]rror:|\bERROR\b|\[error\]"
    r"|\b[Ff](?:atal|ailed|ailure)\b|\bF(?:ATAL|AILED)\b|^Killed|\b[Tt]erminated\b|^Aborted|core dumped"
    r"|\b[Cc](?:ould not|annot)\b|\b[Uu]nable to\b|\b[Dd]enied\b|\bnot supported\b|\brefused\b"
    r"|\b[Ss]egmentation\b|\b[Ee]rror!|\btim(?:ed|ing) out\b|\buncaught exception\b|\[E\d{3,4} |: [EF] \w+/"
    r"|^Traceback \(most|^\s*File \".*\", line \d|\bexit (?:code|status):? ?[1-9]"
    r"|错误|錯誤|失败|失敗|异常|\bF[Ee](?:hler|HLER)\b|fehlgeschlagen|\b[Ee]rreur\b|échou|\b[Ee]rrore?\b:|falló|шибка|エラー|오류"
    r"|权限不够|拒绝|\bKeine Berechtigung\b|non accordée|denegado\b|отказано|Отказано|negada\b|核心已转储)"
)
"""How the last lines of a log read that ends in a failure."""
_FAILING: Final = re.compile(
    r"(?i:(?<!\b0 )(?<!\bno )(?<!\bwithout )(?<!\bcorrected )\b(?:errors?|failed|failures?|fails|fatal"
    r"|un(?:recogni[sz]ed|supported|defined)|invalid|illegal|mismatch(?:es|ed)?|disallowed|incompatible|corrupt(?:ed)?|denied|refused|rejected"
    r"|cannot|can't|could(?:n't| not)|unable|no such|not (?:found|installed|allowed|compatible|recogni[sz]ed))\b)"
    r"|\w(?:Error|Exception|NotFound)\b|" + _ENDING.pattern
)
"""How a line reads that somebody quotes because something failed."""
_QUOTED: Final = 5
"""Most lines of such a quotation."""
_VERSION: Final = re.compile(r"\d+(?:\.\d+)+\w*")
_WISH: Final = re.compile(
    r"(?i:\b(?:requires?|needs?|wants?|expects?|at least|minimum|works with"
    r"|(?:upgrade|update|downgrade) to)\b(?:(?!\b(?:but|have|has|found|detected|installed)\b|[;,]).){0,40})$"
)
"""How a line goes on to a version that it wants."""
_OR_LATER: Final = re.compile(
    r"(?i:\s*(?:\+(?!\w)|(?:or|and) (?:higher|newer|later|above|greater|up)\b|is (?:required|needed)\b))"
)
"""How a line goes on behind one."""
_QUOTE: Final = re.compile(r'\\+"')
"""A quotation mark in a string, or in a string of a string."""
_NOTE: Final = re.compile(r"^[^A-Za-z]*[IW](?:\d* |: )|\b(?:info|warning|warn|debug)\b", re.IGNORECASE)
"""A line that says itself that it is no error."""
_MEASURED: Final = re.compile(r"\berror: ?\d+\.\d+(?:e[-+]?\d+)?%?(?=\s|[,;|)]|$)", re.IGNORECASE)
"""An error that a program measures, and does not make."""
_LAST_LINES: Final = 3
_ESCAPED_END: Final = re.compile(r"((?<!\w)[a-z]:\\(?!\\)[^\s\"'<>|*?]*)|\\[rnt]", re.IGNORECASE)
"""A path of Windows, or what stands for the end of a line in a string of JSON."""
_NAMED: Final = re.compile(r"(?<!\{)\{(\w+)\}(?!\})")
"""A word of the line in an expression for what stands near it."""
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
                before = block.text[-_NEAR_BYTES:]
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
        around = before.lower() + lowered + after[:_NEAR_BYTES].lower()

        def show(found: _Found, rows: list[Row]) -> None:
            near = _Near(around, len(before) + found.start, len(before) + found.end)
            if _SOURCE.match(found.raw):
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
        for part in {first, _unescape(first)} if "\\n" in first else (first,):
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
        ends = [match.span() for match in re.finditer(rb"[^\n]*\S[^\n]*", block.text[-_NEAR_BYTES:])]
        shift = max(0, len(block.text) - _NEAR_BYTES)
        # Nobody shows few lines without a reason: in them any word of a failure counts.
        quoted = not shift and block.first <= 1 and len(ends) <= _QUOTED and not self.matches and not self.errors
        ends, failing = (ends, _FAILING) if quoted else (ends[-_LAST_LINES:], _ENDING)
        for start, end in ((shift + start, shift + end) for start, end in reversed(ends)):
            number = block.first + block.numbered.count(b"\n", 0, start)
            text = block.text[start:end].decode("utf-8", "replace")
            if number in self._explained or (self.errors and self.errors[-1].number >= number):
                return
            if failing.search(text) and not _NOTE.search(text) and not _MEASURED.search(text):
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
            if end - start > 2 * _NEAR_BYTES:  # a part of a long line is enough
                start, end = max(start, begin - _NEAR_BYTES), min(end, stop + _NEAR_BYTES)
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

    def _match(self, row: Row, found: "_Found", near: "_Near", source: str) -> bool:
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
        match.on_the_way = match.on_the_way and _is_on_the_way(found.raw)
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
                while words is not None and (rest := _skip_wish(line.raw, words.get("value", ""))) is not None:
                    line = replace(line, raw=rest, lowered=rest.lower())
                    words = line.find(fact.lines)
                if words is not None:
                    number = f"{words['major']}.{words['minor']}" if "major" in words else "yes"
                    self.facts[fact.name] = words.get("value", number)
                    self._shown[fact.name] = (self._logs, Line(found.number, found.raw.strip(), source))

    def _suspect(self, source: str, before: bytes, text: bytes, found: "_Found", patterns: list[Pattern]) -> None:
        if found.number in self._explained or _MEASURED.search(found.raw):
            return
        if all(found.match(pattern) is None for pattern in patterns):
            return
        self._keep(Line(found.number, found.raw.strip(), source), before, text, found.start)

    def _keep(self, line: Line, before: bytes, text: bytes, start: int) -> None:
        self.errors[_ERRORS - 1 :] = [line]  # the first ones, and the last
        above = (before if start < _NEAR_BYTES else b"") + text[max(0, start - _NEAR_BYTES) : start]
        self.origin = _find_origin(above.decode("utf-8", "replace")) or self.origin


def _skip_wish(line: str, version: str) -> str | None:
    """Return what follows in a line on a version that it only wants, which may not be there; None if it does not."""
    before, found, after = line.partition(version) if _VERSION.fullmatch(version) else ("", "", "")
    return after if found and (_WISH.search(before) or _OR_LATER.match(after)) else None


def _is_on_the_way(line: str) -> bool:
    """Return whether a line of a traceback is not the message at its end."""
    text = line.lstrip(_QUOTING)
    return any(each.match(text) for each in (_FRAME, _CELL, _RAISING))


def _find_origin(text: str) -> tuple[str, ...]:
    """Return the innermost frames of the last traceback in a text: the program's, and that of a library below it."""
    frames = list(_FRAME.finditer(text, text.rfind("Traceback (most recent call last)") + 1))
    own = [index for index, frame in enumerate(frames) if not _LIBRARY.search(frame[1])]
    shown = dict.fromkeys([*own[-1:], *([len(frames) - 1] if frames else [])])
    return tuple(f"{frames[index][1]}, line {frames[index][2]}, in {frames[index][3] or '<module>'}" for index in shown)


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
            for part in _unescape(self.raw).split("\n"):
                yield part, part.lower()


def _unescape(text: str) -> str:
    """Return a text with its escaped line ends and tabs as such, but for the folders of a path of Windows."""
    text = _ESCAPED_END.sub(lambda found: found[1] or ("\t" if found[0] == "\\t" else "\n"), text)
    return _QUOTE.sub('"', text)


class _Near:
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
        """Return the package in whose file the traceback before this line ends, its caller, and the module imported.

        ``generated`` is the module that protoc wrote, if it asked protobuf. ``answered``: no frame shows who asked.
        ``program`` is the file of one's own in which it ends, if it ends in one.
        ``statement`` is the last line of source that the traceback quotes; ``removed`` is what pip replaced, and
        ``holder`` the package for which it did so.

        Where none stands before it, as the message was copied above its traceback, that after it counts.
        """
        frames = _list_frames(self._before()) or _list_frames("".join(self._after().partition(_TRACEBACK)[1:]))
        asking = _skip_getters(frames)
        answered = bool(frames) and not asking
        frames = asking or frames
        package = _PACKAGE.search(frames[-1][1]) if frames else None
        told = {"raiser": package[2], "raising": ".".join(re.findall(r"\w+", package[1]))} if package else {}
        told |= {"answered": "yes"} if answered else {}
        file = next((frame[1] for frame in reversed(frames) if not _OF_PROTOBUF.search(frame[1])), "")
        if generated := _GENERATED.search(file):
            told["generated"] = generated[0]
        if asking and not _LIBRARY.search(asking[-1][1]):
            told["program"] = frames[-1][1]
        # Who called what raised the error, if a function of TensorFlow stands between them.
        above = [frame[1] for frame in frames if frame[1] != frames[-1][1]]
        owners = [found[2] if (found := _PACKAGE.search(each)) else "" for each in above]
        caller = next((each for each in reversed(owners) if each not in {"tensorflow", "tensorflow_core"}), "")
        told |= {"caller": caller} if caller else {}
        if compiled := _COMPILED.findall(self._before()):
            folder, package, release = compiled[-1]
            told |= {"compiled": package, "release": release} if package else {"compiled": folder}
        if removed := _REMOVED.findall(self._before()):
            told["removed"] = " ".join(f"{name}=={version}" for name, version in removed)
            told |= {"holder": asked[-1]} if (asked := _INSTALLED.findall(self._before())) else {}
        if quoted := _STATEMENT.findall(self._before()):
            told["statement"] = quoted[-1].strip()
        if found := _IMPORT.search(self._before()):
            module = found[1] if not found[1].startswith(".") else told.get("raiser", "")
            told |= {"imported": module} if module else {}
        return told

    def _before(self) -> str:
        if "before" not in self._parts:
            text = self._text[max(0, self._start - _NEAR_BYTES) : self._start]
            self._parts["before"] = _decode(b"\n".join(text.split(b"\n")[-_NEAR_LINES:]))
        return self._parts["before"]

    def _after(self) -> str:
        if "after" not in self._parts:
            text = self._text[self._end : self._end + _NEAR_BYTES]
            self._parts["after"] = _decode(b"\n".join(text.split(b"\n")[:_NEAR_LINES]))
        return self._parts["after"]


def _expand(text: str, words: Mapping[str, str]) -> re.Pattern[str]:
    return re.compile(text.format_map({name: re.escape(word.lower()) for name, word in words.items()}))


def _list_frames(text: str) -> list[re.Match[str]]:
    return sorted((*_FRAME.finditer(text), *_CELL.finditer(text)), key=_start)


def _skip_getters(frames: list[re.Match[str]]) -> list[re.Match[str]]:
    """Return frames without those at their end in which a module or object only says that it lacks a name."""
    while frames and _GETTER.fullmatch(frames[-1][3] or ""):
        frames = frames[:-1]
    return frames


def _start(match: re.Match[str]) -> int:
    return match.start()


def _decode(text: bytes) -> str:
    said = text.decode("utf-8", "replace")
    return _unescape(said) if "\\n" in said else said


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
