"""Files of a run that are larger than any can be, or that never end: nothing waits for them."""

import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from toolkit.base import keys
from toolkit.cli import app


def ask(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, list(words))
    assert "Traceback" not in done.output
    return done.exit_code, done.output


@pytest.mark.parametrize("name", ["manifest.json", "metrics.jsonl", "confusion.csv"])
@pytest.mark.parametrize("kind", ["large", "pipe"])
def test_a_file_of_a_run_that_would_never_end(run: Path, name: str, kind: str) -> None:
    (run / name).unlink()
    if kind == "pipe":
        os.mkfifo(run / name)
    else:
        (run / name).touch()
        os.truncate(run / name, 1 << 40)
    code, said = ask("verify", str(run))
    assert code in {7, 8}, said


def test_a_signed_manifest_that_has_grown_is_an_error_of_integrity(run: Path, tmp_path: Path) -> None:
    keys.make(tmp_path / "k")
    assert ask("sign", str(run), "--key", str(tmp_path / "k"))[0] == 0
    os.truncate(run / "manifest.json", 1 << 40)
    assert ask("verify", str(run), "--trust", str(tmp_path / "k.pub"))[0] == 8
