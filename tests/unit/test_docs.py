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
TARGETS = set(re.findall(r"^([\w./-]+)(?: [\w./-]+)*:", (ROOT / "Makefile").read_text(), re.MULTILINE))
USAGE = typer.BadParameter.__bases__[0]
"""The base class of all usage errors of the command line."""

SERVICES = set(yaml.safe_load((ROOT / "compose.yaml").read_text())["services"])


def _find_commands(text: str) -> Iterator[str]:
    fence = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
    for block in fence.findall(text):
        yield from block.replace("\\\n", "").splitlines()
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    yield from re.findall(r"`((?:toolkit|make|python -m|docker compose) [^`]+)`", prose)


def _find_inner(words: list[str]) -> list[str]:
    """Return the command after a pipe, or that in a loop."""
    if "do" in words:
        return [re.sub(r"\$\w+", "1", word.rstrip(";")) for word in words[words.index("do") + 1 : -1]]
    return words[words.index("|") + 1 :] if "|" in words else []


def _check(line: str) -> None:
    command = itertools.dropwhile(re.compile("[A-Z_]+=").match, shlex.split(line, comments=True))
    match list(command):
        case ["toolkit" | ".venv/bin/toolkit", "clean" | "up" | "train" as name, *_] if "[" in line:
            assert name in _commands()
        case ["find" | "for", *words] if inner := _find_inner(words):
            _check(shlex.join(inner))
        case ["toolkit", "--help" | "--install-completion" | "--show-completion"]:
            pass
        case ["toolkit", "launch" as group, name, *options]:
            with _commands()[group].commands[name].make_context(name, options):
                pass
        case ["toolkit" | ".venv/bin/toolkit", name, *options]:
            # This parses and checks every option, and runs nothing.
            with _commands()[name].make_context(name, _fill(name, options)):
                pass
        case ["make", target, *_]:
            assert target in TARGETS or (ROOT / "Makefile").read_text().find(f"\n{target}") >= 0
        case ["python" | ".venv-dev/bin/python", "-m", module, *_]:
            assert importlib.util.find_spec(module) is not None
        case [".venv/bin/python" | "python", script, *_] if script.endswith(".py"):
            assert (ROOT / script).is_file()
        case ["docker", "compose", "up", "--scale", scaled, service]:
            assert service in SERVICES
            assert scaled.partition("=")[0] == service
        case ["docker", "compose", "up", service] | ["docker", "compose", "run", "--rm", service, *_]:
            assert service in SERVICES or service in {"-v", "--entrypoint"}
        case (
            ["docker", "builder" | "load" | "login" | "pull" | "save", *_]
            | [".toolkit/environment-cpu-*/venv/bin/python", "-m", "train", "plot" | "compare", *_]
            | ["(umask", *_]
            | ["docker", "compose", "--profile", "*", "down"]
            | ["export", *_]
            | [".toolkit/environment-cpu-*/venv/bin/tensorboard", "--logdir", _]
            | ["gh", "secret", "set", *_]
            | ["mkdir", *_]
            | ["python3" | "python3.11", "-m", "venv", _]
            | [".", ".venv/bin/activate"]
            | ["pip", "install", "."]
            | ["pip", "download", *_]
            | ["git", "clone", "--branch", _, "--depth", "1", _]
            | ["module", "load", _]
            | ["course-env/bin/pip", "install", ".[train]", "jupyterlab"]
            | ["course-env/bin/jupyter", "lab", "docs/course"]
            | ["my-env/bin/python", "-c", _]
            | ["uv", "pip", "install", *_]
            | ["curl", "--form", *_]
            | ["cosign", "verify-blob-attestation", *_]
            | ["rekor-cli", "upload", *_]
            | []
        ):
            pass
        case _:
            pytest.fail(f"a command of a kind that no test knows: {line}")


@functools.cache
def _commands() -> dict[str, Any]:
    group = typer.main.get_command(app)
    assert isinstance(group, typer.core.TyperGroup)
    return dict(group.commands)


def _fill(name: str, options: list[str]) -> list[str]:
    required = [item for item in _commands()[name].params if item.param_type_name == "argument" and item.required]
    return options if options or not required else ["X"]


STEPS = {
    f"{path.name}: {line}": line
    for path in (ROOT / ".github" / "workflows").glob("*.yml")
    for line in re.findall(r"(?m)^ +(?:- )?run: (\.venv/bin/toolkit .*)", path.read_text())
}
PAGE_COMMANDS = {f"{page.name}: {line}": line for page in PAGES for line in _find_commands(page.read_text()) if line}
COMMANDS = EXAMPLES | STEPS | PAGE_COMMANDS


REFUSALS = (USAGE, KeyError, AssertionError, pytest.fail.Exception)


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


@pytest.mark.parametrize(
    "line", ["toolkit smok", "toolkit doctor --of", "make nothing", "python -m train.nothing", "rm x"]
)
def test_a_command_that_does_not_exist_is_found(line: str) -> None:
    with pytest.raises(REFUSALS):
        _check(line)


@pytest.mark.parametrize("name", DRAWINGS)
def test_a_drawing_shows_what_the_program_answers(name: str) -> None:
    assert DRAWINGS[name]() == (ROOT / "docs" / name).read_text(), "run: python -m tools.pages"


UNLIMITED = {"CONTRIBUTING.md", "commands.md", "exit-codes.md", "options.md", "troubleshooting.md", "versions.md"}
MOST_WORDS, MOST_WORDS_IN_CELL, MOST_LINES_BEFORE_COMMAND = 90, 30, 20
"""What a reader can take in at once. Generated pages are for looking up."""


def test_links_lead_to_files_and_from_the_readme_to_every_page() -> None:
    reached = {ROOT / path for path in list_sources(ROOT, ("README.md",))}
    assert [page for page in PAGES if page not in reached] == []
    links = {page: re.findall(r"\]\(([^)#:]+)\)", page.read_text()) for page in PAGES}
    assert [link for page in PAGES for link in links[page] if not (page.parent / link).exists()] == []


def test_no_paragraph_and_no_cell_of_a_table_is_long() -> None:
    for page in PAGES:
        if page.name not in UNLIMITED:
            text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
            text = re.sub(r"\]\([^)]*\)", "]", text)
            rows = re.findall(r"(?m)^\|.*", text)
            cells = [cell for row in rows for cell in re.split(r"(?<!\\)\|", row)]
            paragraphs = re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.)\s)", re.sub(r"(?m)^\|.*", "", text))
            assert [cell for cell in cells if len(cell.split()) > MOST_WORDS_IN_CELL] == [], page
            assert [each for each in paragraphs if len(each.split()) > MOST_WORDS] == [], page


def test_a_guide_begins_with_a_command() -> None:
    """The tutorials and how-to guides of the site show soon what to do."""
    text = (ROOT / "mkdocs.yml").read_text()
    names = re.findall(r"docs/[\w-]+\.md", text[text.index("- Tutorials:") : text.index("- Reference:")])
    begins = {name: (ROOT / name).read_text().splitlines()[:MOST_LINES_BEFORE_COMMAND] for name in names}
    assert len(names) > 10
    assert [name for name in names if not any(line.startswith("```sh") for line in begins[name])] == []
