"""One trained run, in an environment of the toolkit that jobs can run in."""

import shutil
from pathlib import Path

import pytest

from tests.unit.audit import maker


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ``state`` and ``runs``, as a user's."""
    folder = tmp_path_factory.mktemp("place")
    maker.borrow_environment(folder / "state")
    maker.train(folder / "runs", "--seed", "3", "--log-every", "5", parent=maker.describe_environment(folder / "state"))
    return folder


@pytest.fixture
def run(place: Path, tmp_path: Path) -> Path:
    """A copy of the run in a folder of its own, where the environment is the same."""
    shutil.copytree(place / "state", tmp_path / "state", symlinks=True)
    return Path(shutil.copytree(place / "runs", tmp_path / "runs") / next((place / "runs").glob("digits-*")).name)
