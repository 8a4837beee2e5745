import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tests.unit.report.conftest import Place
from toolkit.base import digest
from toolkit.cli import app


@pytest.fixture
def call(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> "Call":
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TOOLKIT_STATE", str(place.state))
    return Call(place)


class Call:
    def __init__(self, place: Place) -> None:
        self.place = place

    def __call__(self, *words: str) -> Result:
        return CliRunner().invoke(app, ["report", *words])


def test_the_page_is_named_after_its_run_and_reported(call: Call) -> None:
    done = call(str(call.place.run), "--json")
    assert done.exit_code == 0, done.stderr
    value = json.loads(done.stdout)
    page = Path(f"{call.place.run.name}.html")
    assert value["page"] == str(page)
    assert value["bytes"] == page.stat().st_size
    assert f"sha256:{value['sha256']}" == digest.digest_file(page)
    assert value["links"]["weights"] == "ok"


def test_two_commands_write_the_same_bytes(call: Call) -> None:
    for name in ("one.html", "two.html"):
        assert call(str(call.place.run), "--out", name).exit_code == 0
    assert Path("one.html").read_bytes() == Path("two.html").read_bytes()


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["no-such-run"], 2, "there is no no-such-run"),
        (["."], 8, "holds no wheel"),
        (["RUN", "--out", "/proc/page.html"], 4, "cannot write"),
        (["RUN", "--trust", "gone.pub"], 2, "gone.pub"),
    ],
)
def test_what_cannot_be_shown_is_refused(call: Call, words: list[str], code: int, said: str) -> None:
    done = call(*(str(call.place.run) if word == "RUN" else word for word in words))
    assert done.exit_code == code
    assert said in done.stderr
    assert not list(Path().glob("*.html"))
