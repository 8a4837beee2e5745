import shutil
from pathlib import Path

import pytest

from tests.unit.records import maker, signed


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    environment = maker.describe_environment(folder / "state")
    return maker.train(folder / "runs", "--seed", "3", "--log-every", "5", parent=environment)


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "runs" / trained.name))


@pytest.fixture
def state(tmp_path: Path) -> Path:
    maker.make_environment(tmp_path / "state")
    return tmp_path / "state"


@pytest.fixture(scope="session")
def signed_once(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> signed.World:
    return signed.make(tmp_path_factory.mktemp("signed"), trained)


@pytest.fixture
def world(signed_once: signed.World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> signed.World:
    return signed.copy(signed_once, tmp_path / "world", monkeypatch)
