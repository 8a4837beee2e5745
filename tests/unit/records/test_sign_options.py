"""`--sign` of the commands that make something."""

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests import loaded
from tests.command import Run
from tests.unit.records import maker, signed
from toolkit.base import keys
from toolkit.cli import app
from toolkit.engine import Environment, Job, Listener
from toolkit.engine.host import HostEngine


@pytest.fixture
def toolkit(tmp_path: Path) -> Run:
    keys.make(tmp_path / "key")
    return Run(tmp_path)


@pytest.mark.slow
def test_a_run_is_signed_with_its_environment(toolkit: Run, tmp_path: Path) -> None:
    maker.make_environment(tmp_path / ".toolkit", loaded.start())
    secret = (tmp_path / "key").read_text()
    words = ("train", *maker.OPTIONS, *maker.STOCK, "--epochs", "1", "--engine", "host", "--tensorflow", "2.19.0")
    done = toolkit(*words, "--sign", "env:KEY", "--json", KEY=secret)
    assert done.returncode == 0, done.stderr
    run = next(tmp_path.glob("runs/digits-*"))
    verified = toolkit("verify", str(run), "--trust", "key.pub", "--strict", "--json")
    assert verified.returncode == 0, verified.stderr
    found = [item["id"] for item in json.loads(verified.stdout)["findings"] if item["id"].endswith("signature")]
    assert found == ["signature", "environment.signature"]
    line = secret.splitlines()[1]
    written = [path for path in tmp_path.rglob("*") if path.is_file() and line.encode() in path.read_bytes()]
    assert written == [tmp_path / "key"]
    assert line not in done.stdout + done.stderr + "".join(toolkit.started)
    again = toolkit(*words, "--sign", "key")
    assert again.stderr.count("signed before") == 2


@pytest.mark.parametrize(
    "words", [("up",), ("train", "digits"), ("smoke",), ("build-image",), ("build-wheel",)], ids=lambda words: words[0]
)
def test_a_bad_key_is_refused_before_anything_starts(toolkit: Run, words: tuple[str, ...]) -> None:
    before = sorted(toolkit.folder.iterdir())
    done = toolkit(*words, "--sign", "key.pub")
    assert done.returncode == 2, done.stderr
    assert "key.pub is no private key that can sign" in done.stderr
    assert sorted(toolkit.folder.iterdir()) == before
    assert toolkit.started == []


def test_a_report_is_signed_until_it_is_written_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(_engine: HostEngine, _environment: Environment, _job: Job, listener: Listener) -> int:
        listener(json.dumps({"report": signed.REPORT}))
        return 0

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(HostEngine, "run", answer)
    keys.make(tmp_path / "key")
    folder = maker.make_environment(tmp_path / ".toolkit", Path(sys.executable))
    words = ["smoke", "--engine", "host", "--tensorflow", "2.19.0"]
    done = CliRunner().invoke(app, [*words, "--sign", "key"])
    assert done.exit_code == 0, done.output
    report = next(folder.glob("smoke-*.json"))
    trusted = ["verify", str(report), "--trust", "key.pub"]
    assert CliRunner().invoke(app, trusted).exit_code == 0
    assert CliRunner().invoke(app, words).exit_code == 0
    again = CliRunner().invoke(app, trusted)
    assert again.exit_code == 8, again.output
    assert "signature: the report is not signed" in again.output
