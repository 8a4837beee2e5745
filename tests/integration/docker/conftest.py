import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.docker import stages


@pytest.fixture(scope="session")
def cache() -> Iterator[str]:
    with stages.use_cache() as name:
        yield name


@pytest.fixture(scope="session")
def result(bazel: None, cache: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    outcome = stages.build_mini(cache=cache, output=folder, arguments={"COMPUTE_CAPABILITIES": "7.5"})
    assert outcome.code == 0, outcome.text
    return folder


@pytest.fixture
def mini(tmp_path: Path) -> Path:
    return Path(shutil.copytree(stages.MINI, tmp_path / "mini_tensorflow"))


@pytest.fixture
def patches(tmp_path: Path) -> Path:
    return Path(shutil.copytree(stages.ROOT / "bazel_patches", tmp_path / "patches"))
