import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolkit.report import chart
from toolkit.report.chart import Range
from toolkit.report.page_model import Chart, Matrix, Series

NUMBERS = st.floats(-1e9, 1e9)


@pytest.mark.parametrize(
    ("low", "high", "unit", "labels"),
    [
        (0, 2.05, "", ["0.0", "0.5", "1.0", "1.5", "2.0"]),
        (0, 440, "", ["0", "100", "200", "300", "400"]),
        (0.9, 1.0, "%", ["90 %", "92 %", "94 %", "96 %", "98 %", "100 %"]),
        (0.9971, 0.9989, "%", ["99.75 %", "99.80 %", "99.85 %"]),
        (0, 12_000, "", ["0", "5,000", "10,000"]),
        (0, 4e-5, "", ["0.00000", "1.0e-05", "2.0e-05", "3.0e-05", "4.0e-05"]),
    ],
)
def test_ticks_are_round_numbers(low: float, high: float, unit: str, labels: list[str]) -> None:
    assert [label for _, label in chart.list_ticks(Range(low, high), unit=unit)] == labels


@given(st.lists(NUMBERS, min_size=30, max_size=90), st.integers(10, 25))
def test_a_thinned_curve_keeps_its_ends_and_extremes(values: list[float], most: int) -> None:
    series = Series(name="x", xs=list(range(len(values))), ys=values, color=0)
    thinned = chart.thin(series, most)
    assert len(thinned.xs) <= max(most, 2)
    assert (thinned.xs[0], thinned.xs[-1]) == (0, len(values) - 1)
    assert (min(thinned.ys), max(thinned.ys)) == (min(values), max(values))
    assert all(values[int(x)] == y for x, y in zip(thinned.xs, thinned.ys, strict=True))
    assert list(thinned.xs) == sorted(thinned.xs)


def test_a_long_run_stays_small() -> None:
    steps = list(range(200_000))
    series = [Series(name=str(n), xs=steps, ys=[math.sin(x / 999 + n) for x in steps], color=n) for n in range(3)]
    drawn = chart.draw(Chart(id="a", title="a", x="step", y="y", series=series, text="a"))
    assert sum(map(len, drawn.paths)) < 60_000
    assert [len(each["xs"]) for each in drawn.data["series"]] == [1200] * 3 or all(
        len(each["xs"]) <= chart.POINTS for each in drawn.data["series"]
    )


@pytest.mark.parametrize("ys", [[1.0], [0.0, 0.0], [5.0, 5.0]])
def test_flat_curves_have_an_axis(ys: list[float]) -> None:
    series = Series(name="a", xs=list(range(len(ys))), ys=ys, color=0)
    drawn = chart.draw(Chart(id="a", title="a", x="step", y="y", series=[series], text="a"))
    assert "nan" not in "".join(drawn.paths)
    assert drawn.y_ticks


def test_large_matrices_are_drawn_and_huge_ones_listed() -> None:
    def make(count: int) -> Matrix:
        counts = [
            [int(true == predicted) * 9 + (predicted == 0) for predicted in range(count)] for true in range(count)
        ]
        return Matrix(caption="x", names=[f"class {n}" for n in range(count)], counts=counts)

    assert [each.kind for each in chart.describe_matrix(make(10))] == ["matrix", "table"]
    whole, listed = chart.describe_matrix(make(100))
    assert whole.kind == "matrix"
    assert len(listed.rows) == chart.LISTED  # type: ignore[union-attr]
    assert "20 of 99 pairs" in listed.caption
    assert [each.kind for each in chart.describe_matrix(make(chart.DRAWN + 1))] == ["table"]
    paths = chart.draw_matrix(make(100).counts)
    assert sum(path.count("M") for path in paths) == 199
