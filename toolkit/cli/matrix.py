"""``toolkit matrix``: what can be built, and who says so."""

from toolkit.cli import options
from toolkit.cli.guard import guarded


@guarded
def matrix(json: options.Json = False) -> None:
    """Show the version table: TensorFlow with its Bazel, Python, CUDA and cuDNN, each fact with its source."""
    from dataclasses import asdict

    from toolkit import matrix as table

    data = table.load()
    console = options.open_console(json=json, quiet=False, verbose=False)
    heads = ("TensorFlow", "Python", "Bazel", "CUDA", "cuDNN", "tested", "sources")
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
        for row in data.rows()
    ]
    widths = [max(len(row[column]) for row in (heads, *rows)) for column in range(len(heads))]
    lines = [
        "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in (heads, *rows)
    ]
    used = sorted({source for row in data.rows() for source in row.sources})
    lines += ["", f"updated {data.updated}; sources:"]
    lines += [f"  {name}: {data.sources[name].what}, {data.sources[name].date}" for name in used]
    value = {
        "updated": data.updated,
        "rows": [asdict(row) for row in data.rows()],
        "sources": {name: asdict(source) for name, source in data.sources.items()},
    }
    console.result(value, "\n".join(lines))


def _span(versions: tuple[str, ...]) -> str:
    return f"{versions[0]} … {versions[-1]}" if len(versions) > 1 else "".join(versions) or "-"
