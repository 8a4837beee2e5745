import math

from toolkit.report import chart
from toolkit.report.page_model import Chart, Matrix, Series


def test_a_long_run_stays_small() -> None:
    steps = list(range(200_000))
    series = [Series(name=str(n), xs=steps, ys=[math.sin(x / 999 + n) for x in steps], color=n) for n in range(3)]
    drawn = chart.draw(Chart(id="a", title="a", x="step", y="y", series=series, text="a"))
    assert sum(map(len, drawn.paths)) < 60_000
    assert [len(each["xs"]) for each in drawn.data["series"]] == [1200] * 3 or all(
        len(each["xs"]) <= chart.POINTS for each in drawn.data["series"]
    )


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
