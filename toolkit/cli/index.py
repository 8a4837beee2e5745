from pathlib import Path
from typing import Annotated

import typer

from toolkit.base.errors import UsageError
from toolkit.cli.command import Session, command


@command(remember=True, long=True)
def index(
    session: Session,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the index.")],
    sources: Annotated[
        list[str] | None, typer.Argument(metavar="[SOURCE]...", help="Folders of wheels (dist/NAME) and wheel files.")
    ] = None,
    label: Annotated[
        str,
        typer.Option(
            metavar="auto|TEXT",
            help="Preview: turn the wheels into variants of this label, which installers choose by the card; auto: by "
            "their GPUs, such as `sm120`.",
        ),
    ] = "",
    wheels_at: Annotated[
        list[str] | None,
        typer.Option(
            metavar="URL",
            help="Where wheels will lie: a folder, which ends in a slash, or one wheel; repeatable. By default beside "
            "the pages.",
        ),
    ] = None,
    verify: Annotated[bool, typer.Option("--verify", help="Verify an index that is there.")] = False,
) -> None:
    """Make a package index of wheels: a folder of files that any web server can serve.

    It has pages as HTML and JSON, hashes, the metadata of each wheel and its provenance. The index is of the given
    sources alone. The same sources make the same bytes.

    Variants are a draft standard (PEP 825 and 850, schema 0.2.0), which may still change; uv 0.13 reads it with
    --preview-features wheel-variants. The files of the wheel stay the same. Its name gets a label in place of the local
    version, and variant.json says for which GPUs it has machine code and which driver it needs. A repaired wheel gets
    no label, so that all other machines and pip take it. A source that is a variant already stays as it is.
    """
    from toolkit.base import findings
    from toolkit.wheel import package_index

    if verify:
        if sources or wheels_at or label:
            raise UsageError("--verify is for an index alone", remedy="leave out wheels, addresses and --label")
        found = package_index.verify(folder)
        session.console.say(findings.render(found).rstrip())
        value = {"folder": str(folder), "findings": [item.as_dict() for item in found]}
        session.console.result(value, f"index {folder}: {findings.summarize(found)}")
        findings.require(found, remedy="make the index again from its sources: toolkit index")
        return
    entries = package_index.make(folder, [Path(source) for source in sources or ()], wheels_at or (), label)
    session.console.result(
        {"folder": str(folder), "wheels": {each.name: each.digest for each in entries}},
        "\n".join([*(each.name for each in entries), "", f"check it:  toolkit index --verify {folder}"]),
    )
