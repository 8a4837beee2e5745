"""Follow the guides: the commands of each page, in order, in one folder with no more than the page asks of a reader."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.makers.pages import EXAMPLES, ROOT
from tests.unit.exchange import oci
from tests.unit.records.reader import THINGS, Library, Reader, find_rule, list_guides

ELSEWHERE = {"toolkit clean", "toolkit key new keys/builder", "toolkit push dist/NAME registry.example/tensorflow"}
"""Examples that pages run: the reader of the examples has the key already, and still serves."""

EXAMPLE_LINES = sorted({line for line in EXAMPLES.values() if find_rule(line).how != "skip"} - ELSEWHERE)


PAGES = list_guides()


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Library]:
    with oci.serve() as registry:
        yield Library(tmp_path_factory.mktemp("guides"), registry)


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_reader_can_follow_the_page(library: Library, page: Path) -> None:
    assert library.follow(page) == []


@pytest.fixture(scope="module")
def reader(library: Library) -> Iterator[Reader]:
    """Return a reader who has everything that the examples in the help of the commands name."""
    (page := library.root / "examples.md").write_text("Before:\n\n")
    reader = library.prepare(page)
    for make in THINGS.values():
        make(reader.folder)
    for line in ("toolkit train digits", "toolkit key new keys/builder", "toolkit sign dist/NAME --key keys/builder"):
        assert reader.type(line) == ""
    shutil.copytree(ROOT / "examples", reader.folder / "examples")
    yield reader
    assert reader.end() == []


@pytest.mark.slow
@pytest.mark.parametrize("line", EXAMPLE_LINES)
def test_the_example_in_the_help_of_a_command_works(reader: Reader, line: str) -> None:
    assert reader.type(line) == ""


@pytest.mark.slow
def test_a_command_that_fails_is_found(reader: Reader) -> None:
    assert reader.type("toolkit build-wheel --cuda 12.6.1 --cudnn 9.3.0")


def test_a_page_in_whose_order_a_command_fails_is_found(library: Library) -> None:
    page = library.root / "page.md"
    page.write_text("Before: an image, `photo.jpg`.\n\n```sh\ntoolkit verify runs/NAME\n```\n")
    assert len(library.follow(page)) == 1
