"""``toolkit matrix``: what can be built, and who says so."""

from typing import TYPE_CHECKING

from toolkit.cli.session import Session, command

if TYPE_CHECKING:
    from toolkit.matrix import Matrix

HEADS = ("TensorFlow", "Python", "Bazel", "CUDA", "cuDNN", "tested", "sources")


@command()
def matrix(session: Session) -> None:
    """Show the version table: TensorFlow with its Bazel, Python, CUDA and cuDNN, each fact with its source."""
    from dataclasses import asdict

    from toolkit.matrix import load

    table = load()
    value = {
        "updated": table.updated,
        "rows": [asdict(row) for row in table.rows()],
        "sources": {name: asdict(source) for name, source in table.sources.items()},
    }
    session.console.result(value, render(table))


def render(table: "Matrix") -> str:
    """The table for a person: a row a version of TensorFlow, an empty line, and what the sources are."""
    rows = [
        (
            row.version,
            _span(row.python),
            row.bazel,
            _span(row.cuda),
            _span(row.cudnn),
            "yes" if row.tested else "no",
            ", ".join(row.sources),
        )
        for row in table.rows()
    ]
    widths = [max(len(row[column]) for row in (HEADS, *rows)) for column in range(len(HEADS))]
    lines = ["  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)) for row in (HEADS, *rows)]
    used = sorted({source for row in table.rows() for source in row.sources})
    notes = [f"  {name}: {table.sources[name].what}, {table.sources[name].date}" for name in used]
    return "\n".join([*(line.rstrip() for line in lines), "", f"updated {table.updated}; sources:", *notes])


def _span(versions: tuple[str, ...]) -> str:
    return f"{versions[0]} … {versions[-1]}" if len(versions) > 1 else "".join(versions) or "-"
