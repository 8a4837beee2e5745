"""Prepares confusion matrices: as a table where it can be read, else drawn, with the most frequent confusions."""

from collections.abc import Sequence
from typing import Final

from toolkit.report.page_model import Matrix, Table

READABLE: Final = 30
"""Most classes of a matrix that is shown as a table."""

DRAWN: Final = 200
"""Most classes of a matrix that is drawn."""

LISTED: Final = 20
"""Number of confusions that are listed."""

SHADES: Final = 10


def shade(count: int, row: Sequence[int]) -> int:
    """Return the shade of a cell by its share of the true class, from 0 (none) to `SHADES` (all)."""
    return 0 if not count else max(1, round(SHADES * count / sum(row)))


def describe(matrix: Matrix) -> list[Matrix | Table]:
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


def draw(counts: Sequence[Sequence[int]]) -> list[str]:
    """Return an SVG path for each shade from 1 on, with a square of side 1 for each cell of it."""
    paths = [""] * SHADES
    for true, row in enumerate(counts):
        for predicted, count in enumerate(row):
            if count:
                paths[shade(count, row) - 1] += f"M{predicted} {true}h1v1h-1z"
    return paths
