"""Paths and files that no command can use: each is one message, with its exit code, at once."""

import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.unit.records import maker
from toolkit.cli import app

LONG = "a" * 100_000


def ask(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, list(words))
    assert "Traceback" not in done.output
    assert len(done.output) < 10_000
    return done.exit_code, done.output


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "words",
    [
        ("verify", LONG),
        ("report", LONG),
        ("verify", f"dir/{LONG}/x"),
        ("train", f"./{LONG}", "--engine", "host"),
        ("train", "--config", LONG),
        ("key", "new", LONG),
    ],
    ids=lambda words: " ".join(word[:9] for word in words),
)
def test_a_name_that_is_too_long(words: tuple[str, ...]) -> None:
    assert ask(*words)[0] in {2, 9}


@pytest.mark.parametrize("place", ["pipe", "/dev/zero", "large"])
@pytest.mark.parametrize("option", ["--trust", "--key"])
def test_a_key_is_a_regular_file_of_a_bounded_size(option: str, place: str, folder: Path) -> None:
    os.mkfifo("pipe")
    Path("large").touch()
    os.truncate("large", 1 << 40)
    maker.make_environment(folder / "state")
    target = str(next((folder / "state").glob("environment-*")))
    code, said = ask("verify" if option == "--trust" else "sign", target, option, place)
    assert code == 2, said
