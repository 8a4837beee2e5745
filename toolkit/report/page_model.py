"""Defines what a page shows: headline numbers, and sections of tables, charts, pictures and links of a chain.

The readers of runs and other things return these; the template turns each into HTML.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from toolkit.base.findings import Finding, State

NOTHING: Final = "\N{EN DASH}"
"""What a cell shows that has no value."""

Tone = State | Literal[""]


@dataclass(frozen=True, kw_only=True)
class Number:
    """A headline number, and what it is."""

    label: str
    text: str
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A cell of a table. One with a tone shows a mark beside its text."""

    text: str
    tone: Tone = ""
    note: str = ""
    code: bool = False
    strong: bool = False
    share: float | None = None  # from 0 to 1: drawn as a bar below the text
    dots: Sequence[float] = ()  # from 0 to 1: values on an axis that the column shares
    href: str = ""  # id of what on the page it leads to


Row = Sequence[Cell | str]


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table; the first column heads its rows. ``numeric``: the columns that are aligned on their digits."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Row]
    numeric: frozenset[int] = frozenset()
    folded: str = ""  # what opens it, if it is not open at first
    kind: str = "table"


@dataclass(frozen=True, kw_only=True)
class Text:
    text: str
    kind: str = "text"


@dataclass(frozen=True, kw_only=True)
class Series:
    name: str
    xs: Sequence[float]
    ys: Sequence[float]
    color: int  # number of the colour
    faint: bool = False  # thin, behind the others
    dashed: bool = False
    dots: bool = False  # a dot for each value
    weights: Sequence[float] = ()  # of each dot: from 0 to 1, its area
    band: Sequence[tuple[float, float]] = ()  # lowest and highest value at each place


@dataclass(frozen=True, kw_only=True)
class Chart:
    """Curves over one axis. ``unit``: ``%`` for shares, which are shown in percent, or a word behind each value."""

    id: str
    title: str
    x: str
    y: str
    series: Sequence[Series]
    text: str  # what the curves say, in a sentence or two
    unit: str = ""
    x_unit: str = ""
    logarithmic: bool = True  # whether the values may be shown on a logarithmic scale
    bottom: float | None = None  # lowest value of the axis, whatever the curves have
    square: bool = False  # both axes are shares from 0 to 1, with a line where they are the same
    values: Table | None = None
    kind: str = "chart"


@dataclass(frozen=True, kw_only=True)
class Matrix:
    """Counts by true class (rows) and predicted class (columns). ``links``: what a cell leads to, by row and column."""

    caption: str
    names: Sequence[str]
    counts: Sequence[Sequence[int]]
    links: Mapping[tuple[int, int], str] = field(default_factory=dict)
    kind: str = "matrix"


@dataclass(frozen=True, kw_only=True)
class Picture:
    data: str  # a URI
    alt: str
    caption: str
    width: int
    height: int
    kind: str = "picture"


@dataclass(frozen=True, kw_only=True)
class Tile:
    """A part of a sheet of images: left, top, width and height in its pixels; and what is said of it."""

    id: str
    box: tuple[int, int, int, int]
    title: str
    note: str
    detail: str
    cell: str  # of the confusion matrix: numbers of true and predicted class
    tone: Tone = ""


@dataclass(frozen=True, kw_only=True)
class Sheet:
    """Images that one picture holds, shown one by one."""

    id: str
    caption: str
    picture: Picture
    tiles: Sequence[Tile]
    kind: str = "sheet"


@dataclass(frozen=True, kw_only=True)
class Document:
    """A file as it is, or its beginning. ``left_out``: how many bytes are not here."""

    name: str
    text: str
    left_out: int = 0


@dataclass(frozen=True, kw_only=True)
class Link:
    """A link of the chain behind a thing."""

    name: str
    title: str
    state: State
    digest: str = ""
    digest_of: str = "SHA-256"
    meaning: str = ""  # in a sentence, what it is
    findings: Sequence[Finding] = ()
    signature: str = ""
    signed: State = "skipped"  # skipped: no signature was checked
    documents: Sequence[Document] = ()


@dataclass(frozen=True, kw_only=True)
class Chain:
    links: Sequence[Link]
    trusted: bool  # whether signatures were checked against a policy
    kind: str = "chain"


@dataclass(frozen=True, kw_only=True)
class Section:
    id: str
    title: str
    parts: Sequence[Any]
    lead: str = ""


@dataclass(frozen=True, kw_only=True)
class Page:
    kind: str  # what the page is about, as ``Training run``
    title: str
    lead: str
    numbers: Sequence[Number]
    sections: Sequence[Section]
    chain: Chain | None = None  # shown in short at the top; a section has the whole
    commands: Sequence[str] = ()  # that check or repeat what the page says
