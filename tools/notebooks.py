"""Runs the cells of a notebook in this process, and turns a notebook into a page of the site."""

import contextlib
import io
import json
import linecache
import tempfile
from collections.abc import Callable, Iterator
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


def run(path: Path, after: Callable[[Cell], None] | None = None) -> dict[str, Any]:
    """Run the code cells of a notebook in order, and return the names that they defined; raises a CellError.

    The names begin empty, as in a fresh kernel. Modules that are imported already are not imported again. What is to be
    done after each cell, of code or text, is the caller's.
    """
    names: dict[str, Any] = {"__name__": "__main__"}
    for cell in read_cells(path):
        place = f"{path.name}, cell {cell.number}"
        # Tracebacks and TensorFlow's AutoGraph find the source of a cell here, as they do in Jupyter.
        linecache.cache[place] = (len(cell.text), None, cell.text.splitlines(keepends=True), place)
        try:
            exec(compile(cell.text if cell.is_code else "", place, "exec"), names)  # noqa: S102
        except Exception as error:
            raise CellError(f"{place}: {type(error).__name__}: {error}") from error
        if after:
            after(cell)
    return names


def show(path: Path, folder: Path) -> None:
    """Run a notebook, and write it into a folder as a page with what each cell prints and draws; raises a CellError.

    The page is named as the notebook, with the suffix ``.md``, and its pictures are beside it.
    """
    import keras
    import matplotlib as mpl
    from matplotlib import pyplot as plt

    mpl.use("agg")
    keras.utils.clear_session()  # names of layers are numbered from the start, as in a fresh kernel
    parts: list[str] = []
    said = io.StringIO()

    def keep(cell: Cell) -> None:
        parts.append(_render(cell))
        if said.getvalue():
            parts.append(f"``` {{.text .output .no-copy}}\n{said.getvalue().rstrip()}\n```")
        said.seek(0)
        said.truncate()
        for number in plt.get_fignums():
            figure, name = plt.figure(number), f"{path.stem}-{len(parts)}.png"
            figure.savefig(folder / name, bbox_inches="tight", dpi=120)
            parts.append(f"![{figure.get_suptitle() or figure.axes[0].get_title()}]({name})")
        plt.close("all")

    with tempfile.TemporaryDirectory() as scratch, contextlib.chdir(scratch), contextlib.redirect_stdout(said):
        run(path, keep)
    (folder / path.with_suffix(".md").name).write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def _render(cell: Cell) -> str:
    return f"```python\n{cell.text}\n```" if cell.is_code else cell.text


def render(path: Path) -> str:
    """Return a notebook as Markdown, without what its cells show."""
    return "\n\n".join(map(_render, read_cells(path))) + "\n"
