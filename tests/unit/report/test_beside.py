"""Commands that make a run write its page beside it."""

import json
from pathlib import Path

import pytest

from tests import loaded
from tests.command import Run
from tests.unit.records import maker
from tests.unit.report.conftest import Place
from tests.unit.report.reading import parse
from toolkit.base.console import Console
from toolkit.cli.command import Session
from toolkit.cli.results import write_page
from toolkit.jobs.training_job import PAGE
from toolkit.versions import settings

WORDS = [f"--{option}" for option in ("depth=10", "epochs=1", "steps=3", "batch-size=64", "kernels=stock", "threads=1")]
"""A run of a second."""


class Commands(Run):
    """Runs commands beside a host environment, whose Python has loaded TensorFlow already."""

    def __init__(self, folder: Path) -> None:
        state, version = folder / "state", maker.SPEC.tensorflow
        super().__init__(folder, TOOLKIT_STATE=str(state), TOOLKIT_ENGINE="host", TOOLKIT_TENSORFLOW=version)
        maker.make_environment(state, loaded.start())


def read_states(page: Path) -> dict[str, str]:
    root = parse(page.read_text(encoding="utf-8"))
    links = (each.text.strip().partition(": ") for each in root.find("nav", class_="strip")[0].find("a"))
    return {name: state for name, _, state in links}


@pytest.fixture
def commands(tmp_path: Path) -> Commands:
    return Commands(tmp_path)


def test_training_writes_its_page_once_and_names_it(commands: Commands) -> None:
    done = commands("train", "digits", *WORDS, "--json")
    assert done.returncode == 0, done.stderr
    page = commands.folder / json.loads(done.stdout)["report"]
    assert page.name == PAGE
    before = page.stat()
    assert read_states(page)["weights"] == "ok"
    done = commands("train", "digits", *WORDS)
    assert f"{page.parent.name}: {PAGE}, curves.png" in done.stdout
    assert page.stat().st_mtime_ns == before.st_mtime_ns
    page.unlink()
    page.mkdir()
    done = commands("verify", str(page.parent))
    assert done.returncode == 0, "the page is no part of the record"


def test_a_page_that_cannot_be_written_does_not_fail_the_run(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    (place.run / "config.yaml").write_text("[]")
    assert write_page(Session(Console(), settings.resolve({})), place.run) == ""
    assert f"there is no page of {place.run}: " in capsys.readouterr().err
    assert not (place.run / PAGE).exists()
