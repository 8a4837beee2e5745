import json
import subprocess
import sys
from pathlib import Path

import pytest

from toolkit import project
from toolkit.cli import command

WRITE = 'echo "$TOOLKIT_COMMAND $TOOLKIT_EXIT_CODE $TOOLKIT_SECONDS" >said'


@pytest.fixture
def run(tmp_path: Path) -> "Run":
    return Run(tmp_path)


class Run:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, *words: str, hook: str = WRITE) -> "subprocess.CompletedProcess[str]":
        argv = [sys.executable, "-m", "toolkit", *words, "--on-end", hook]
        variables = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(project.ROOT), "DOCKER_HOST": "unix:///nowhere.sock"}
        return subprocess.run(argv, cwd=self.folder, env=variables, capture_output=True, text=True, check=False)

    @property
    def said(self) -> str:
        return (self.folder / "said").read_text().strip()


def test_the_command_at_the_end_knows_how_it_ended(run: Run) -> None:
    assert run("up", "digits", "--engine", "host", "--dry-run").returncode == 0
    assert run.said.startswith("up 0 ")
    assert run("build-wheel", "--cuda", "1.2.3", "--cudnn", "9.5.0").returncode == 3
    assert run.said.startswith("build-wheel 3 ")


def test_its_output_is_no_result_and_its_failure_changes_nothing(run: Run) -> None:
    done = run("up", "digits", "--engine", "host", "--dry-run", "--json", hook="echo words; exit 9")
    assert done.returncode == 0
    assert json.loads(done.stdout)["commands"]
    assert "words" in done.stderr
    assert "--on-end: it ended with 9" in done.stderr


def test_one_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(command, "HOOK_SECONDS", 0.2)
    with command._notifying("sleep 5", "up", command.Console()):
        pass
    assert "it took too long" in capsys.readouterr().err


def test_it_is_an_option_and_no_setting(run: Run) -> None:
    """A toolkit.yaml of the current folder must not run programs."""
    (run.folder / "toolkit.yaml").write_text("on_end: touch said\n")
    done = run("up", "digits", "--engine", "host", "--dry-run", hook="")
    assert done.returncode == 2
    assert "unknown name: on_end" in done.stderr
    assert not (run.folder / "said").exists()
