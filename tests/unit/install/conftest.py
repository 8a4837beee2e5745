import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.install.index import Index
from toolkit.base import interpreters
from toolkit.install import installation
from toolkit.install.target import Target


def make_environment(folder: Path) -> Target:
    """Make a virtual environment without pip, as uv does, which takes a tenth of a second."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    return Target(folder=folder, python=interpreters.ask(folder / "bin" / "python"))


@pytest.fixture
def target(tmp_path: Path) -> Target:
    return make_environment(tmp_path / "environment")


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Index:
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    return Index(tmp_path / "index")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Let a new environment get no pip, and need no free disk."""
    (tmp_path / "no-pip.txt").write_text("")
    monkeypatch.setattr(installation, "SEED", str(tmp_path / "no-pip.txt"))
    monkeypatch.setattr(installation, "NEEDED_BYTES", 0)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


def take_stock(folder: Path) -> dict[str, bytes]:
    """Return the files of an environment; bytecode aside, which importing makes, and uv's lock."""
    paths = (path for path in sorted(folder.rglob("*")) if path.is_file() and "__pycache__" not in path.parts)
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths if path.name != ".lock"}
