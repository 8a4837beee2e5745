"""Runs the cells of a notebook in this process, and turns a notebook into a page of the site."""

import json
import linecache
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

COURSE = Path(__file__).parents[1] / "docs" / "course"
COURSE_NOTEBOOKS = sorted(COURSE.glob("*.ipynb"))


@dataclass(frozen=True)
class Cell:
    """The text of a cell, and its place in the notebook, counted from 1."""

    number: int
    is_code: bool
    text: str


class CellError(Exception):
    """Names the notebook and the cell in which an error was raised."""


def read_cells(path: Path) -> Iterator[Cell]:
    """Yield the cells of a notebook."""
    for number, cell in enumerate(json.loads(path.read_text(encoding="utf-8"))["cells"], start=1):
        yield Cell(number, cell["cell_type"] == "code", "".join(cell["source"]))


def run(path: Path) -> dict[str, Any]:
    """Run the code cells of a notebook in order, and return the names that they defined; raises a CellError.

    The names begin empty, as in a fresh kernel. Modules that are imported already are not imported again.
    """
    names: dict[str, Any] = {"__name__": "__main__"}
    for cell in read_cells(path):
        if not cell.is_code:
            continue
        place = f"{path.name}, cell {cell.number}"
        # Tracebacks and TensorFlow's AutoGraph find the source of a cell here, as they do in Jupyter.
        linecache.cache[place] = (len(cell.text), None, cell.text.splitlines(keepends=True), place)
        try:
            exec(compile(cell.text, place, "exec"), names)  # noqa: S102
        except Exception as error:
            raise CellError(f"{place}: {type(error).__name__}: {error}") from error
    return names


def render(path: Path) -> str:
    """Return a notebook as Markdown."""
    cells = read_cells(path)
    return "\n\n".join(f"```python\n{cell.text}\n```" if cell.is_code else cell.text for cell in cells) + "\n"
