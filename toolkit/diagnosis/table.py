"""Reads the tables of failures: what programs print when they fail, why, and what to do."""

import difflib
import functools
import gc
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from toolkit.base.errors import UsageError, refer
from toolkit.diagnosis.patterns import Filter, Pattern
from toolkit.versions.table import read_yaml

TABLES: Final = Path(__file__).with_name("failures")
FACTS: Final = Path(__file__).with_name("facts.yaml")
_TRACKERS: Final = re.compile(r"(?:([\w.-]+)/)?([\w.-]+)#(\d+)")

Certainty = Literal["certain", "likely"]
PLACES: Final[Mapping[str, str]] = {
    "build": "while an image is built",
    "jetson": "on a Jetson",
    "container": "in a container",
    "wsl2": "in WSL 2",
}
"""Where a remedy may be another one."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What to say of a failure in one case. An empty field leaves what the row says."""

    cause: str = ""
    remedy: str = ""
    commands: tuple[str, ...] = ()
    needs: Mapping[str, str] = field(default_factory=dict)
    """What a word must be: this text, in this range of versions, or not known if this is empty."""
    certainty: Certainty | Literal[""] = ""


@dataclass(frozen=True, kw_only=True)
class Sign:
    """How a failure shows: by a line with one of ``lines``, if what stands near allows it."""

    lines: tuple[Pattern, ...] = ()
    before: tuple[Pattern, ...] = ()  # before, after, near: one of these must stand in the lines there
    after: tuple[Pattern, ...] = ()
    near: tuple[Pattern, ...] = ()
    without: tuple[Pattern, ...] = ()  # none of these may stand near
    unlike: tuple[Pattern, ...] = ()  # none of these may stand in the line itself
    echoes: tuple[str, ...] = ()  # expressions, filled with the words of the line, of which one must stand near
    tells: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Such expressions for the lines ``before`` or ``near``, whose groups are words of the failure too."""
    when: Mapping[str, str] = field(default_factory=dict)  # range of versions or numbers by the name of a word
    each: str = ""  # word by which two failures of this kind are told apart

    def stands_in(self, text: str) -> bool:
        """Return whether a text has one of the lines, whatever stands near."""
        lowered = text.lower()
        return any(pattern.stands_in(lowered) for pattern in self.lines)


@dataclass(frozen=True, kw_only=True)
class Rank:
    """What a failure is beside the others of the same log."""

    general: bool = False  # a kind, of which another row may say more
    fallback: bool = False  # any other failure says more
    envelope: bool = False  # only reports that something else failed; any other failure, or its ``{said}``, says more
    circumstance: bool = False  # no failure by itself: counts beside one that it explains, if an answer fits the log
    harmless: bool = False
    stops: bool = True  # the program ends by it
    follows: tuple[str, ...] = ()  # failures of which this one is a consequence
    explains: tuple[str, ...] = ()  # failures that are consequences of this one
    unless: tuple[str, ...] = ()  # failures that say more of the same lines


@dataclass(frozen=True, kw_only=True)
class Row:
    """A failure."""

    id: str
    subject: str  # the title of its table
    title: str  # what people see, and paste into a search engine
    sign: Sign
    rank: Rank
    cause: str
    remedy: str
    commands: tuple[str, ...] = ()
    facts: tuple[str, ...] = ()  # of which a circumstance takes the first that the log has, in place of lines
    look_up: Mapping[str, str] = field(default_factory=dict)  # table of knowledge.yaml that has more of a word
    answers: tuple[Answer, ...] = ()  # the first of which all words are known says more than cause and remedy
    places: Mapping[str, Answer] = field(default_factory=dict)  # the remedy by where it happens, if it is another there
    sources: tuple[str, ...]
    examples: tuple[str, ...]  # texts that show it
    certainty: Certainty = "certain"
    concerns: str = ""  # versions, cards or machines
    repeats: bool = True  # whether the same command fails again in the same way
    error: str = "build"  # the kind of error by which a build of the toolkit ends
    known: str = ""  # id of the same failure in the version table

    def to_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "title": self.title,
            "cause": self.cause,
            "remedy": self.remedy,
            "places": {name: place.remedy for name, place in self.places.items()},
            "commands": list(self.commands),
            "certainty": self.certainty,
            "harmless": self.rank.harmless,
            "concerns": self.concerns,
            "sources": list(self.links),
        }

    def render(self) -> str:
        rows = [self.title, f"  id: {self.id} ({'harmless' if self.rank.harmless else self.certainty})"]
        rows += [f"  cause: {self.cause}", f"  try: {self.remedy}"]
        rows += [f"    {command}" for command in self.commands]
        for name, place in self.places.items():
            rows += [f"  {PLACES[name]}: {place.remedy}", *(f"    {command}" for command in place.commands)]
        rows += [f"  concerns: {self.concerns}"] if self.concerns else []
        return "\n".join([*rows, f"  sources: {', '.join(self.links)}"])

    def find_remedy(self, place: str) -> str:
        """Return the remedy for a place of ``PLACES``, or for any other."""
        return self.places[place].remedy if place in self.places else self.remedy

    @property
    def reference(self) -> str:
        """The command that shows the row, for a message."""
        return refer(self.id)

    @property
    def links(self) -> tuple[str, ...]:
        return tuple(_TRACKERS.sub(_link, source) for source in self.sources)


def to_clause(sentence: str) -> str:
    """Return a sentence as a part of another one: without its full stop, and with a small letter at its start."""
    first = sentence.partition(" ")[0]
    starts_small = (first == "A" or first[1:].islower()) and first.removesuffix("'s") not in _NAMES
    return f"{sentence[0].lower()}{sentence[1:]}".rstrip(".") if starts_small else sentence.rstrip(".")


_NAMES: Final = frozenset(
    {"Bazel", "Bazelisk", "Clang", "Debian", "Docker", "Keras", "Podman", "Python", "Slurm", "Windows"}
)


def _link(match: re.Match[str]) -> str:
    owner, name, number = match.groups()
    return f"https://github.com/{owner or name}/{name}/issues/{number}"


@dataclass(frozen=True, kw_only=True)
class Fact:
    name: str
    lines: tuple[Pattern, ...]


@dataclass(frozen=True, kw_only=True)
class FailureTable:
    rows: Mapping[str, Row]
    facts: tuple[Fact, ...]
    filter: Filter[Row]
    fact_filter: Filter[Fact]
    error_filter: Filter[Pattern]  # of lines by which an unknown error is recognised
    exit_codes: Mapping[int, Row]  # of the build's step

    def find(self, name: str) -> Row:
        """Return a row by its id, or by that of the version table. Raises UsageError if there is none."""
        known = {row.known.lower(): row for row in self.rows.values() if row.known}
        if row := self.rows.get(name.lower()) or known.get(name.lower()):
            return row
        near = difflib.get_close_matches(name.lower(), [*self.rows, *known], n=5, cutoff=0.4)
        near += [row for row in self.rows if name and name.lower() in row and row not in near][:10]
        question = f"did you mean {', '.join(near)}? " if near else ""
        raise UsageError(
            f"there is no failure {name!r}", remedy=f"{question}docs/troubleshooting.md has the names of all"
        )


@functools.cache
def load() -> FailureTable:
    collects = gc.isenabled()
    gc.disable()  # what is read here stays, and the collector would walk it many times over
    try:
        return _load()
    finally:
        if collects:
            gc.enable()


def _load() -> FailureTable:
    signs = _read(FACTS)
    rows = {name: _build(row) for name, row in _read_rows().items()}
    named = {name for row in rows.values() for name in (*row.rank.follows, *row.rank.unless, *row.rank.explains)}
    if unknown := named - rows.keys():
        raise ValueError(f"failures that are named and not there: {sorted(unknown)}")
    lines = {name: list(patterns) for name, patterns in signs["facts"].items()}
    for fact in signs["packages"]:
        lines.setdefault(fact, []).extend([*_list_versions(fact), *_list_installed(fact)])
    for fact, packages in signs["installed"].items():
        lines.setdefault(fact, []).extend(each for package in packages for each in _list_installed(package))
    for fact, modules in signs["modules"].items():
        lines[fact].extend(each for module in modules for each in _list_printed(module))
    facts = tuple(Fact(name=name, lines=_compile(patterns)) for name, patterns in lines.items())
    errors = _compile(signs["errors"])
    return FailureTable(
        rows=rows,
        facts=facts,
        filter=Filter((pattern, row) for row in rows.values() for pattern in row.sign.lines),
        fact_filter=Filter((pattern, fact) for fact in facts for pattern in fact.lines),
        error_filter=Filter((pattern, pattern) for pattern in errors),
        exit_codes={code: rows[name] for code, name in signs["exit_codes"].items()},
    )


@functools.cache
def load_row(name: str) -> Row:
    """Return one row by its id, without what a search needs of the others. Raises KeyError if there is none."""
    return _build(_read_rows()[name])


def list_known() -> Mapping[str, str]:
    """Return the id of each row that the version table has too, by its id there."""
    return {row["known"]: name for name, row in _read_rows().items() if row.get("known")}


@functools.cache
def _read(path: Path) -> Mapping[str, Any]:
    return read_yaml(path.read_bytes())  # type: ignore[no-any-return]


@functools.cache
def _read_rows() -> Mapping[str, Mapping[str, Any]]:
    """Return what the tables say of each row, by its id. Raises ValueError if two have the same."""
    told = [row for path in sorted(TABLES.glob("*.yaml")) for row in _list_rows(_read(path))]
    rows = {row["id"]: row for row in told}
    if len(rows) != len(told):
        raise ValueError("two failures have the same id")
    return rows


def _list_rows(table: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the rows of a table, with what holds for all of them."""
    shared = {"subject": table["subject"]}
    for name, usual in (("kinds", _KIND), ("failures", {})):
        for row in table.get(name, ()):
            yield {**shared, **usual, **row}


_KIND: Final[Mapping[str, Any]] = {"general": True, "fallback": True, "certainty": "likely"}
_TOLD: Final = Answer(cause="{said}", remedy="{try}", commands=("{run}", "{run_also}"))
"""The last answer of a row that looks words up, unless it says itself where that holds."""
_SIGN: Final = ("when", "each", "echoes", "tells")
_PATTERNS: Final = ("lines", "before", "after", "near", "without", "unlike")
_RANK: Final = (
    "general",
    "fallback",
    "envelope",
    "circumstance",
    "harmless",
    "stops",
    "follows",
    "explains",
    "unless",
)


def _build(row: Mapping[str, Any]) -> Row:
    given: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in row.items()}
    sign: dict[str, Any] = {name: given.pop(name) for name in _SIGN if name in row}
    sign |= {name: _compile(given.pop(name)) for name in _PATTERNS if name in row}
    rank: dict[str, Any] = {name: given.pop(name) for name in _RANK if name in row}
    given["places"] = {name: _answer(place) for name, place in row.get("places", {}).items()}
    answers = tuple(_answer(answer) for answer in row.get("answers", ()))
    tells = "look_up" in row and all(answer.cause != _TOLD.cause for answer in answers)
    given["answers"] = (*answers, _TOLD) if tells else answers
    if "examples" in given:
        given.setdefault("title", given["examples"][0].partition("\n")[0].strip())
    else:
        line = Pattern(row["lines"][0])
        given["examples"] = ("\n".join([line.sample, *row.get("near", ())]),)
        given.setdefault("title", line.headline)
    return Row(**given, sign=Sign(**sign), rank=Rank(**rank))


def _answer(answer: Mapping[str, Any]) -> Answer:
    return Answer(**{**answer, "commands": tuple(answer.get("commands", ()))})


def _list_versions(package: str) -> Iterator[str]:
    """Yield the patterns of a package's version in commands and files, which may spell it as a module."""
    module = package.replace("-", "_")
    for start in dict.fromkeys([f"{package}==", f"{module}==", f"{module}-"]):
        yield f"{start}{{value:version}}"


def _list_installed(package: str) -> Iterator[str]:
    """Yield the patterns of a package's version in lists of what is installed, and in what `pip show` says."""
    yield f"^{package}=={{value:version}}"
    yield f"^{package} {{value:version}}$"
    yield f"^{package}  {{column:blanks}}{{value:version}}"
    yield f"^Name: {package} Version: {{value:version}}"


def _list_printed(module: str) -> Iterator[str]:
    """Yield the patterns of a version that a module says of itself, behind what asked for it."""
    yield f"{module}.__version__<|)|)'|)\"> <'|\"|>{{value:version}}"
    yield f"{module}.__version__<|)> Out[*]: '{{value:version}}"


def _compile(patterns: Iterable[str]) -> tuple[Pattern, ...]:
    return tuple(Pattern(text) for text in patterns)
