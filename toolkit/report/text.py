"""Writes what a page shows as text for a terminal: numbers, the chain, tables, and a sentence for each chart."""

import io
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from toolkit.report.chart import READABLE
from toolkit.report.page_model import NOTHING, Cell, Chain, Chart, Matrix, Page, Table, Text
from train.system.output import printable

if TYPE_CHECKING:
    import rich.table

DIGITS: Final = 12
"""Digits of a digest that are shown."""


def render(page: Page, *, width: int = 100) -> str:
    """Return the text of a page. Pictures, and tables that are closed on the page, are left out."""
    import rich.text
    from rich.console import Console  # takes a tenth of a second to import

    stream = io.StringIO()
    console = Console(file=stream, width=width, no_color=True, highlight=False)
    console.print(rich.text.Text(f"{page.kind}: {printable(page.title)}"))
    console.print(rich.text.Text(printable(page.lead)))
    if page.numbers:
        console.print()
        console.print(_make_grid(Table(caption="", columns=("", "", ""), rows=list(_list_numbers(page)))))
    for section in page.sections:
        parts = [grid for part in section.parts if (grid := _draw(part)) is not None]
        if parts:
            console.print()
            console.print(rich.text.Text(printable(section.title)))
            for part in parts:
                console.print(part)
    if page.commands:
        console.print()
        console.print(rich.text.Text("\n".join(printable(command) for command in page.commands)))
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines())


def _list_numbers(page: Page) -> Iterator[tuple[str, str, str]]:
    for number in page.numbers:
        yield number.label, number.text, number.note


def _draw(part: Any) -> Any:
    """Return a part of a section as `rich` draws it, or None: text has no form for it."""
    match part:
        case Table(folded=""):
            return _make_grid(part)
        case Chart() | Text():
            return _make_line(Cell(text=part.text))
        case Chain():
            columns = ("Link", "State", "Digest", "Name")
            return _make_grid(Table(caption="", columns=columns, rows=list(_list_links(part))))
        case Matrix(names=names, counts=counts) if len(names) <= READABLE:
            rows = [(name, *map(str, row)) for name, row in zip(names, counts, strict=True)]
            return _make_grid(
                Table(
                    caption="",
                    columns=("", *names),
                    rows=rows,
                    numeric=frozenset(range(1, len(names) + 1)),
                )
            )
    return None


def _list_links(chain: Chain) -> Iterator[tuple[str, ...]]:
    for link in chain.links:
        digest = link.digest.removeprefix("sha256:")[:DIGITS] or NOTHING
        signature = f"  ({link.signature})" if link.signature and link.signature != "not signed" else ""
        yield link.name, link.state, digest, f"{link.title}{signature}"


def _make_grid(table: Table) -> "rich.table.Table":
    import rich.table

    grid = rich.table.Table(box=None, padding=(0, 2, 0, 0), show_header=any(table.columns))
    for at, name in enumerate(table.columns):
        grid.add_column(printable(name), justify="right" if at in table.numeric else "left")
    for row in table.rows:
        grid.add_row(*(_make_line(cell if isinstance(cell, Cell) else Cell(text=cell)) for cell in row))
    return grid


def _make_line(cell: Cell) -> Any:
    import rich.text

    return rich.text.Text(printable(cell.text) + (f" ({printable(cell.note)})" if cell.note else ""))
