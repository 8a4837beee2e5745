from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toolkit.base.errors import UsageError
from toolkit.cli.command import Session, Trust, command

if TYPE_CHECKING:
    from toolkit.report.page_model import Page


@command(remember=True)
def report(
    session: Session,
    targets: Annotated[
        list[str],
        typer.Argument(
            metavar="TARGET...",
            help="What `toolkit verify` takes; several runs are shown side by side.",
        ),
    ],
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The page; by default NAME.html in this folder.")
    ] = None,
    as_text: Annotated[
        bool, typer.Option("--text", help="Print it as text, without pictures, and write no page.")
    ] = False,
    trust: Trust = None,
    pictures: Annotated[bool, typer.Option("--pictures/--no-pictures", help="Show images of the data.")] = True,
) -> None:
    """Write one HTML file about a run, several runs, a wheel, an environment, an image or a smoke report.

    It has numbers, curves, confusions and images, and the chain behind them as `toolkit verify` finds it, with every
    record. It asks no other host for anything and opens anywhere. A link that does not hold is shown as `fail`; the
    exit code is 0 all the same, because this is for reading, and `toolkit verify` is for checking. With --trust,
    signatures are checked too.
    """
    from toolkit import records, report
    from toolkit.base import digest, files
    from toolkit.report.chain import PageContext

    context = PageContext(state=Path(session.settings.state), policy=records.read_policy(trust or ()))
    if as_text:
        if out:
            raise UsageError("--text and --out exclude each other", remedy="leave one of them out")
        _print_text(session, report.describe(targets, context, pictures=False))
        return
    described, text = report.compose(targets, context, pictures=pictures)
    content = text.encode()
    place = out or Path(f"{report.name_page(targets)}.html")
    files.write_atomically(place, content)
    states = {link.name: link.state for link in described.chain.links} if described.chain else {}
    value = {"page": str(place), "sha256": digest.digest_bytes(content).removeprefix("sha256:"), "bytes": len(content)}
    failed = [name for name, state in states.items() if state == "fail"]
    warning = f"; does not hold: {', '.join(failed)}" if failed else ""
    session.console.result(value | {"links": states}, f"{place}: {len(content):,} bytes{warning}")


def _print_text(session: Session, page: "Page") -> None:
    import shutil
    from dataclasses import asdict

    from toolkit.report import text

    links = page.chain.links if page.chain else ()
    value = {
        "kind": page.kind,
        "title": page.title,
        "numbers": [asdict(number) for number in page.numbers],
        "links": [{"name": link.name, "state": link.state, "digest": link.digest} for link in links],
    }
    session.console.result(value, text.render(page, width=shutil.get_terminal_size((100, 24)).columns))
