import shutil
import subprocess
from typing import Annotated, Literal

import pytest
import typer

from tools import pages, reference

COMMANDS = reference.read_commands()


def test_the_manual_says_what_the_code_says() -> None:
    assert reference.render_manual(pages.list_job_options()) == pages.MANUAL.read_text(), "run: python -m tools.pages"


def test_an_option_that_is_described_once_means_the_same_in_every_command() -> None:
    for panel in reference.SHARED:
        found = {(each.name, each.written, each.help) for command in COMMANDS for each in command.list_shared(panel)}
        assert sorted(name for name, *_ in found) == sorted(reference.SHARED[panel])


def test_a_parameter_is_described_with_its_values_default_and_bounds() -> None:
    app = typer.Typer(rich_markup_mode=None)

    @app.command()
    def train(
        data: Annotated[str, typer.Argument(help="Data.", metavar="DATA")],
        size: Annotated[int, typer.Option(min=1, help="Size.")] = 3,
        port: Annotated[int, typer.Option(min=1, max=9, help="Port.")] = 2,
        kind: Annotated[Literal["a", "b"], typer.Option(help="Kind.")] = "a",
        quick: Annotated[bool, typer.Option(help="Quick.")] = True,
        check: Annotated[bool, typer.Option("--check", help="Check.")] = False,
        name: Annotated[str | None, typer.Option(help="Name.")] = None,
    ) -> None:
        """Train."""

    (command,) = reference.read_commands(app, "train")
    assert [(each.written, each.default, each.help) for each in command.parameters[:7]] == [
        ("DATA", "required", "Data."),
        ("--size N", "`3`", "Size. At least 1."),
        ("--port N", "`2`", "Port. 1 to 9."),
        ("--kind a|b", "`a`", "Kind."),
        ("--quick / --no-quick", "on", "Quick."),
        ("--check", "", "Check."),
        ("--name TEXT", "", "Name."),
    ]
    assert command.usage == "train [OPTIONS] {DATA}"


def lint(text: str) -> list[str]:
    done = subprocess.run(
        ["mandoc", "-Tlint", "-W", "warning"], input=text, capture_output=True, text=True, check=False
    )
    # Without a date it has the same bytes whenever it is made.
    return [line for line in done.stdout.splitlines() if "missing date" not in line]


@pytest.mark.skipif(not shutil.which("mandoc"), reason="needs mandoc")
def test_the_manual_is_well_formed() -> None:
    assert lint(pages.MANUAL.read_text()) == []
    head = ".TH A 1\n.SH NAME\na \\- b\n"
    assert lint(head + ".XX\n"), "a page that is not is found"
    for text in (".toolkit", "'a'", "\\n"):
        assert lint(f"{head}{reference.escape(text)}\n") == []
