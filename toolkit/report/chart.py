"""Computes what a page draws of charts, in shares of the plot area as `page.js` does in a zoom, and of matrices."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from toolkit.report.page_model import Chart, Matrix, Series, Table

SIDE: Final = 1000
"""Width and height of the coordinates of paths; the page stretches them over the plot area."""

TICKS: Final = 5
"""Number of labels of an axis, about."""

POINTS: Final = 1200
"""Most points of a curve; of more, the lowest and the highest of each stretch are kept."""

DOT: Final = 2.5
"""Radius of a dot without weight, in pixels."""

ALL_POINTS: Final = 24_000
"""Most points of all curves of a chart together."""

LEAST: Final = 1e-300
"""Half of a smaller number may be too small for a number."""

READABLE: Final = 30
"""Most classes of a matrix that is shown as a table."""

DRAWN: Final = 200
"""Most classes of a matrix that is drawn."""

LISTED: Final = 20
"""Number of confusions that are listed."""

SHADES: Final = 10


@dataclass(frozen=True)
class Range:
    low: float
    high: float

    def place(self, value: float) -> float:
        return (value - self.low) / (self.high - self.low)


@dataclass(frozen=True)
class Tick:
    percent: str  # place on the axis
    label: str


@dataclass(frozen=True)
class Drawing:
    """What the template draws: ticks of both axes, and a path, an area and dots for each series."""

    x_ticks: Sequence[Tick]
    y_ticks: Sequence[Tick]
    paths: Sequence[str]
    areas: Sequence[str]
    dots: Sequence[Sequence[tuple[str, str, float]]]  # place from the left and from the top, radius
    data: Any  # for page.js


def draw(chart: Chart) -> Drawing:
    most = max(100, min(POINTS, ALL_POINTS // max(1, len(chart.series))))
    shown = [thin(series, most) for series in chart.series]
    across = Range(0.0, 1.0) if chart.square else spread([x for series in shown for x in series.xs], 0)
    values = [y for series in shown for y in (*series.ys, *(end for pair in series.band for end in pair))]
    up = (
        across
        if chart.square
        else spread([*values, *([] if chart.bottom is None else [chart.bottom])], 0.06, chart.bottom)
    )
    return Drawing(
        x_ticks=[Tick(_percent(across.place(x)), label) for x, label in list_ticks(across, unit=chart.x_unit)],
        y_ticks=[Tick(_percent(1 - up.place(y)), label) for y, label in list_ticks(up, unit=chart.unit)],
        paths=[trace(series.xs, series.ys, across, up) for series in shown],
        areas=[_trace_band(series, across, up) for series in shown],
        dots=[list(_place_dots(series, across, up)) for series in shown],
        data={
            "x": chart.x,
            "x_unit": chart.x_unit,
            "unit": chart.unit,
            "bottom": chart.bottom,
            "square": chart.square,
            "series": [_describe(series) for series in shown],
        },
    )


def _describe(series: Series) -> dict[str, Any]:
    rounded = {"xs": [_round(x) for x in series.xs], "ys": [_round(y) for y in series.ys]}
    band = [[_round(end) for end in pair] for pair in series.band]
    return {"name": series.name, **rounded, "band": band, "radii": [_size(weight) for weight in series.weights]}


def _place_dots(series: Series, across: Range, up: Range) -> Iterator[tuple[str, str, float]]:
    if series.dots:
        weights = series.weights or [0.0] * len(series.xs)
        for x, y, weight in zip(series.xs, series.ys, weights, strict=True):
            yield _percent(across.place(x)), _percent(1 - up.place(y)), _size(weight)


def _size(weight: float) -> float:
    return round(DOT + 8 * math.sqrt(weight), 1)


def _round(value: float) -> float:
    return float(f"{value:.6g}")


def thin(series: Series, most: int = POINTS) -> Series:
    """Return a series with at most so many points, with the lowest and the highest of each stretch."""
    count = len(series.xs)
    if count <= most:
        return series
    kept: set[int] = {0, count - 1}
    stretches = most // 2 - 1
    for number in range(stretches):
        part = range(number * count // stretches, (number + 1) * count // stretches)
        kept |= {min(part, key=series.ys.__getitem__), max(part, key=series.ys.__getitem__)}
    places = sorted(kept)
    band = [series.band[place] for place in places] if series.band else ()
    return replace(series, xs=[series.xs[i] for i in places], ys=[series.ys[i] for i in places], band=band)


def spread(values: Sequence[float], room: float, bottom: float | None = None) -> Range:
    """Return the range of an axis for values, with a share of room at both ends."""
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    if low == high:
        half = (abs(low) if abs(low) > LEAST else 1) / 2
        low, high = low - half, high + half
    more = (high - low) * room
    return Range(low - more if bottom is None else bottom, high + more)


def list_ticks(axis: Range, unit: str = "") -> list[tuple[float, str]]:
    """Return round numbers of a range with their labels."""
    step = find_step((axis.high - axis.low) / TICKS)
    digits = max(0, -math.floor(math.log10(step * (100 if unit == "%" else 1)) + 1e-9))
    first = math.ceil(axis.low / step - 1e-9)
    positions = (number * step for number in range(first, math.floor(axis.high / step + 1e-9) + 1))
    return [(value, format_tick(value, digits, unit)) for value in positions]


def find_step(least: float) -> float:
    """Return 1, 2 or 5 times a power of ten that is not less."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least * (1 - 1e-9))


def format_tick(value: float, digits: int, unit: str = "") -> str:
    if unit == "%":
        return f"{100 * value:.{digits}f} %"
    if value and not 1e-4 <= abs(value) < 1e7:
        return f"{value:.1e}"
    return f"{value:,.{digits}f}" + (f" {unit}" if unit else "")


def trace(xs: Sequence[float], ys: Sequence[float], across: Range, up: Range) -> str:
    """Return the commands of an SVG path."""
    return "M" + "L".join(_points(xs, ys, across, up)) if xs else ""


def _trace_band(series: Series, across: Range, up: Range) -> str:
    if not series.band:
        return ""
    low, high = ([pair[side] for pair in series.band] for side in (0, 1))
    there = list(_points(series.xs, high, across, up))
    back = list(_points(series.xs, low, across, up))[::-1]
    return f"M{'L'.join([*there, *back])}Z"


def _points(xs: Sequence[float], ys: Sequence[float], across: Range, up: Range) -> Iterator[str]:
    for x, y in zip(xs, ys, strict=True):
        yield f"{SIDE * across.place(x):.1f} {SIDE * (1 - up.place(y)):.1f}"


def _percent(share: float) -> str:
    return f"{100 * share:.2f}%"


def shade(count: int, row: Sequence[int]) -> int:
    """Return the shade of a cell by its share of the true class, from 0 (none) to `SHADES` (all)."""
    return 0 if not count else max(1, round(SHADES * count / sum(row)))


def describe_matrix(matrix: Matrix) -> list[Matrix | Table]:
    """Return what is shown of a matrix: the whole, if it is not too large, and its most frequent confusions."""
    wrong = sorted(
        (-count, true, predicted)
        for true, row in enumerate(matrix.counts)
        for predicted, count in enumerate(row)
        if count and true != predicted
    )
    rows = [
        (matrix.names[true], matrix.names[predicted], f"{-count:,}", f"{-count / sum(matrix.counts[true]):.1%}")
        for count, true, predicted in wrong[:LISTED]
    ]
    more = f"{len(rows)} of {len(wrong)} pairs of classes" if len(wrong) > len(rows) else f"{len(wrong)} in all"
    listed = Table(
        caption=f"Most frequent confusions: {more}",
        columns=("True class", "Taken for", "Images", "Share of the class"),
        rows=rows,
        numeric=frozenset({2, 3}),
        folded="Confusions as a list" if len(matrix.names) <= READABLE else "",
    )
    return [*([matrix] if len(matrix.names) <= DRAWN else []), *([listed] if rows else [])]


def draw_matrix(counts: Sequence[Sequence[int]]) -> list[str]:
    """Return an SVG path for each shade from 1 on, with a square of side 1 for each cell of it."""
    paths = [""] * SHADES
    for true, row in enumerate(counts):
        for predicted, count in enumerate(row):
            if count:
                paths[shade(count, row) - 1] += f"M{predicted} {true}h1v1h-1z"
    return paths
