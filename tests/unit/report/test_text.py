from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tests.unit.report.conftest import Place
from toolkit.cli import app
from toolkit.report import text
from toolkit.report.page_model import Chain, Link, Number, Page, Section


@pytest.fixture
def show(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> "Show":
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TOOLKIT_STATE", str(place.state))
    return Show(place)


class Show:
    def __init__(self, place: Place) -> None:
        self.place = place

    def __call__(self, *words: str) -> Result:
        return CliRunner(env={"COLUMNS": "500"}).invoke(app, ["report", "--text", str(self.place.run), *words])


def test_a_run_is_shown_with_its_numbers_and_its_chain(show: Show) -> None:
    done = show()
    assert done.exit_code == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == f"Training run: {show.place.run.name}"
    assert any(line.startswith("Test accuracy") and "%" in line for line in lines)
    assert any(line.startswith("weights ") and " ok " in line for line in lines)
    assert lines[-2:] == [f"toolkit verify {show.place.run}", f"toolkit reproduce {show.place.run}"]


def make_page(*parts: object) -> Page:
    numbers = [Number(label="Accuracy", text="99 %", note="of 360")]
    return Page(
        kind="Wheel", title="a", lead="b", numbers=numbers, sections=[Section(id="s", title="Part", parts=parts)]
    )


def test_no_name_reaches_the_terminal_as_a_command() -> None:
    link = Link(name="run", title="\x1b[2Jgone", state="ok", digest="sha256:" + "a" * 64, signature="by key 1")
    said = text.render(make_page(Chain(links=[link], trusted=False)))
    assert "\x1b" not in said
    assert "aaaaaaaaaaaa " in said
    assert "(by key 1)" in said
    hostile = Page(kind="Wheel", title="\x1b]0;x\x07", lead="[bold]\x1b[1m", numbers=[], sections=[])
    assert "\x1b" not in text.render(hostile)
    assert "[bold]" in text.render(hostile), "markup of the library is not read"
