import functools
import importlib.util
import itertools
import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
import typer
import typer.core
import typer.main
import yaml

from tests.browser import Browser
from tests.makers.pages import EXAMPLES, ROOT
from toolkit.cli import app
from toolkit.cli.help import read_examples
from tools.drawings import DRAWINGS
from tools.reference import read_commands
from tools.site import list_sources

PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "examples" / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
]
MAKEFILE = (ROOT / "Makefile").read_text()
USAGE = typer.BadParameter.__bases__[0]
"""The base class of all usage errors of the command line."""

SERVICES = set(yaml.safe_load((ROOT / "compose.yaml").read_text())["services"])


def _find_commands(text: str) -> Iterator[str]:
    fence = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
    for block in fence.findall(text):
        yield from block.replace("\\\n", "").splitlines()
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    yield from re.findall(r"`((?:toolkit|make|python -m|docker compose) [^`]+)`", prose)


def _check(line: str) -> None:
    """Parse a command of the toolkit with every option, or find a target; other programs are not looked at."""
    words = list(itertools.dropwhile(re.compile("[A-Z_]+=").match, shlex.split(line, comments=True)))
    if words[:1] in (["for"], ["find"]):  # a command after a pipe, or that in a loop
        words = words[words.index("do") + 1 : -1] if "do" in words else words[words.index("|") + 1 :]
        words = [re.sub(r"\$\w+", "1", word.rstrip(";")) for word in words]
    match words:
        case ["toolkit" | ".venv/bin/toolkit", name, *options] if not name.startswith("--"):
            command = _commands()[name]
            if name == "launch":
                command, (name, *options) = command.commands[options[0]], options
            if not any(word.startswith("[") for word in options):
                # This parses and checks every option, and runs nothing.
                with command.make_context(name, _fill(command, options)):
                    pass
        case ["make", target, *_]:
            assert re.search(rf"(?m)^({re.escape(target)}|[\w. /-]* {re.escape(target)}):", MAKEFILE)
        case ["python" | ".venv-dev/bin/python", "-m", module, *_]:
            assert importlib.util.find_spec(module) is not None
        case ["docker", "compose", "up", "--scale", _, service] | ["docker", "compose", "up", service]:
            assert service in SERVICES


@functools.cache
def _commands() -> dict[str, Any]:
    group = typer.main.get_command(app)
    assert isinstance(group, typer.core.TyperGroup)
    return dict(group.commands)


def _fill(command: Any, options: list[str]) -> list[str]:
    required = [item for item in command.params if item.param_type_name == "argument" and item.required]
    return options if options or not required else ["X"]


STEPS = {
    f"{path.name}: {line}": line
    for path in (ROOT / ".github" / "workflows").glob("*.yml")
    for line in re.findall(r"(?m)^ +(?:- )?run: (\.venv/bin/toolkit .*)", path.read_text())
}
PAGE_COMMANDS = {f"{page.name}: {line}": line for page in PAGES for line in _find_commands(page.read_text()) if line}
COMMANDS = EXAMPLES | STEPS | PAGE_COMMANDS


REFUSALS = (USAGE, KeyError, AssertionError)


def test_every_command_can_be_parsed() -> None:
    wrong = []
    for place, line in COMMANDS.items():
        try:
            _check(line)
        except REFUSALS as error:
            wrong.append(f"{place}: {error}")
    assert wrong == []


def test_the_help_of_each_command_has_an_example_of_this_very_command() -> None:
    commands = {name.removeprefix("toolkit").lstrip(): name for name in (each.name for each in read_commands())}
    assert read_examples().keys() == commands.keys()
    for name, lines in read_examples().items():
        assert all(line.startswith(commands[name]) for line in lines)


@pytest.mark.parametrize("name", DRAWINGS)
def test_a_drawing_shows_what_the_program_answers(name: str) -> None:
    assert DRAWINGS[name]() == (ROOT / "docs" / name).read_text(), "run: python -m tools.pages"


def test_links_lead_to_files_and_from_the_readme_to_every_page() -> None:
    reached = {ROOT / path for path in list_sources(ROOT, ("README.md",))}
    assert [page for page in PAGES if page not in reached] == []
    links = {page: re.findall(r"\]\(([^)#:]+)\)", page.read_text()) for page in PAGES}
    assert [link for page in PAGES for link in links[page] if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("name", ["", "docs/course/1-densenet", "docs/install", "docs/options", "docs/troubleshooting"])
def test_the_site_has_no_barrier(name: str, chromium: Browser, axe: str) -> None:
    page = ROOT / ".site" / "html" / name / "index.html"
    if not page.exists():
        pytest.skip("`make docs` has not been run here")
    assert chromium.find_barriers(page, axe) == []
