"""Paths and files that no command can use: each is one message, with its exit code, at once."""

import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.unit.records import maker
from toolkit.base.errors import UsageError
from toolkit.cli import app
from toolkit.engine import registry
from toolkit.versions.settings import resolve

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
        ("report", "--text", LONG),
        ("verify", f"dir/{LONG}/x"),
        ("train", f"./{LONG}", "--engine", "host"),
        ("sign", LONG, "--key", LONG),
        ("train", "--config", LONG),
        ("export", LONG),
        ("key", "new", LONG),
    ],
    ids=lambda words: " ".join(word[:9] for word in words),
)
def test_a_name_that_is_too_long(words: tuple[str, ...]) -> None:
    assert ask(*words)[0] in {2, 9}


@pytest.mark.parametrize("name", ["runs", "data"])
def test_a_setting_with_a_nul_character(name: str, folder: Path) -> None:
    (folder / "toolkit.yaml").write_text(f'{name}: "a\\0b"\n')
    code, said = ask("ls")
    assert code == 2
    assert f"{name} in toolkit.yaml has a NUL character" in said


@pytest.mark.parametrize("name", ["state", "downloads", "archive", "ca_bundle"])
def test_a_variable_with_a_nul_character(name: str) -> None:
    """No system passes one on, but a program that calls the toolkit's functions may."""
    with pytest.raises(UsageError, match=f"TOOLKIT_{name.upper()} .*has a NUL character"):
        resolve({}, environment={f"TOOLKIT_{name.upper()}": "a\0b"})


def test_a_policy_with_a_nul_character(folder: Path) -> None:
    (folder / "policy.yaml").write_text('signers: [{name: a, key: "a\\0b", may: [run]}]\n')
    (folder / "x").mkdir()
    code, said = ask("verify", "x", "--trust", "policy.yaml")
    assert code in {2, 8}, said


@pytest.mark.parametrize("text", ["[1]/a", "[::1]:99999/a", "host:0/a", "https://[1]/a"])
def test_a_repository_that_no_host_can_have(text: str) -> None:
    with pytest.raises(UsageError):
        registry.parse(text)


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
