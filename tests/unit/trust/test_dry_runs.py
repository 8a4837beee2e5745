"""What only says what would be done writes and removes nothing, neither here nor in HOME."""

import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.command import NOWHERE, Run
from tests.makers.credentials import list_commands
from tests.unit.wheel.maker import CPU_INFO, MEMBER, make_wheel

VERSIONS = ("--tensorflow", "2.19.0", "--cuda", "12.6.1", "--cudnn", "9.5.0", "--compute-capability", "7.5")
WHEEL = "{wheel}"

LINES: dict[str, list[tuple[str, ...]]] = {
    "up": [("digits", "--engine", "host", "--card", "none"), ("digits", "--from-source"), ("digits", "--card", "12.0")],
    "train": [("digits", "--engine", "host", "--wheel", WHEEL), ("digits", "--engine", "host", "--card", "none")],
    "smoke": [("--engine", "host", "--wheel", WHEEL), ("--environment", "{environment}")],
    "graft": [("--compute-capability", "12.0"), ("--compute-capability", "12.0", "--wheel", WHEEL)],
    "build-wheel": [(*VERSIONS, *more) for more in ((), ("--source", "{tree}"), ("--collect", "downloads"))],
    "build-image": [("--wheel", WHEEL)],
    "install": [("--card", "none", "--into", "{environment}"), ("--card", "none", "--into", "new"), ("--wheel", WHEEL)],
    "launch slurm": [("digits", "--nodes", "1")],
    "clean": [(), ("--all",), ("--yes",)],
    "reproduce": [(WHEEL,), ("runs/none",)],
    "predict": [("runs/none", "image.png")],
    "serve": [("runs/none",)],
    "evaluate": [("runs/none",)],
    "export": [("runs/none", "--out", "out")],
    "test-card": [(), ("--card", "12.0")],
}
"""What each command that has such an option is given besides. A new command needs a line."""


def _list_lines() -> list[tuple[str, ...]]:
    lines = []
    for words, command in list_commands():
        options = [option for parameter in command.params for option in parameter.opts]
        if "--dry-run" in options:
            lines += [(*words, *rest, "--dry-run") for rest in LINES[" ".join(words)]]
    return sorted(lines)


def _take_stock(*folders: Path) -> dict[str, tuple[int, int, int]]:
    stock = {}
    for folder in folders:
        for path in (folder, *sorted(folder.rglob("*"))):
            status = path.lstat()
            # A folder's time changes when something in it is made and removed again.
            stock[str(path)] = (status.st_mode, status.st_mtime_ns, stat.S_ISREG(status.st_mode) and status.st_size)
    return stock


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    return folder


@pytest.mark.parametrize("line", [*_list_lines(), ("ls", "--json"), ("advise", "T4", "--json")], ids=" ".join)
@pytest.mark.parametrize("state", [False, True], ids=["new folder", "with a state folder"])
def test_nothing_is_written_or_removed(
    tmp_path: Path, run: Run, environment: Path, line: tuple[str, ...], state: bool
) -> None:
    home, tree = tmp_path / "home", tmp_path / "tree"
    for folder in (home, tree, tmp_path / "wheel"):
        folder.mkdir()
    (tree / "configure").touch()
    (tree / ".bazelversion").write_text("6.5.0\n")
    wheel = make_wheel(tmp_path / "wheel", version="2.19.0", files={MEMBER: CPU_INFO})
    if state:  # with what a killed command has left, which the next one that makes something removes
        (run.folder / ".toolkit" / ".0123456789ab.abcdefgh").mkdir(parents=True)
        (run.folder / "dist" / ".0123456789ab.abcdefgh").mkdir(parents=True)
        (run.folder / "runs" / "unfinished").mkdir(parents=True)
    before = _take_stock(run.folder, home, tree, environment, tmp_path / "wheel")
    places = {"wheel": str(wheel), "environment": str(environment), "tree": str(tree)}
    variables = {"HOME": str(home), "XDG_DATA_HOME": "", "XDG_CACHE_HOME": "", "PYTHONDONTWRITEBYTECODE": ""}
    # uv keeps a cache of what it has asked for, outside of what the toolkit makes.
    variables |= {**NOWHERE, "UV_CACHE_DIR": str(tmp_path / "uv")}
    done = run(*(word.format(**places) for word in line), **variables)
    assert "Traceback" not in done.stderr
    assert _take_stock(run.folder, home, tree, environment, tmp_path / "wheel") == before, done.stderr
