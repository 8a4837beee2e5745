from pathlib import Path
from typing import Annotated

import typer

from toolkit.base.errors import UsageError
from toolkit.cli.command import Session, command

Sources = Annotated[
    list[str] | None, typer.Argument(metavar="[SOURCE]...", help="Folders of wheels (dist/NAME) and wheel files.")
]


@command(remember=True, long=True)
def variant(
    session: Session,
    sources: Sources = None,
    label: Annotated[
        str,
        typer.Option(
            metavar="TEXT",
            help="Label of the variant; by default its GPUs, such as `sm120`. `null`: for machines that no other fits.",
        ),
    ] = "",
    plain: Annotated[
        bool, typer.Option("--plain", help="No variant, but the wheel for installers that know none, such as pip.")
    ] = False,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder of finished variants.")] = Path("variants"),
) -> None:
    """Preview: turn a wheel into a variant, which installers choose by the card.

    Variants are a draft standard (PEP 825 and 850, schema 0.2.0), which may still change; uv 0.13 reads it with
    --preview-features wheel-variants. The files of the wheel stay the same. Its name gets a label in place of the local
    version, and variant.json says for which GPUs it has machine code and which driver it needs.
    """
    from toolkit.base import project
    from toolkit.wheel.variant import make

    if not sources:
        raise UsageError("no wheel is named", remedy="give dist/NAME, or a .whl file")
    if plain and label:
        raise UsageError("--plain and --label exclude each other", remedy="leave one of them out")
    made = []
    for source in sources:
        with session.console.timed("variant", Path(source).name):
            made.append(make(Path(source), out, label, plain=plain))
    shown = [str(project.shorten(path.parent)) for path in made]
    text = "\n".join([*shown, "", f"an index of them:  toolkit index DIR {' '.join(shown)}"])
    session.console.result({"wheels": [str(path) for path in made]}, text)


@command(remember=True, long=True)
def index(
    session: Session,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the index.")],
    sources: Sources = None,
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

    It has pages as HTML and JSON, hashes, the metadata of each wheel and its provenance. With variants of wheels (a
    preview, see `toolkit variant`) an installer chooses by the card. The index is of the given sources alone. The same
    sources make the same bytes.
    """
    from toolkit.base import findings
    from toolkit.wheel import package_index

    if verify:
        if sources or wheels_at:
            raise UsageError("--verify is for an index alone", remedy="leave out the wheels and their addresses")
        found = package_index.verify(folder)
        session.console.say(findings.render(found).rstrip())
        value = {"folder": str(folder), "findings": [item.as_dict() for item in found]}
        session.console.result(value, f"index {folder}: {findings.summarize(found)}")
        findings.require(found, remedy="make the index again from its sources: toolkit index")
        return
    entries = package_index.make(folder, [Path(source) for source in sources or ()], wheels_at or ())
    session.console.result(
        {"folder": str(folder), "wheels": {each.name: each.digest for each in entries}},
        "\n".join([*(each.name for each in entries), "", f"check it:  toolkit index --verify {folder}"]),
    )
