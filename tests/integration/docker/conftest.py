import shutil
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.docker import stages


@pytest.fixture(scope="session")
def cache() -> Iterator[str]:
    yield from use_cache()


@pytest.fixture(scope="session")
def result(bazel: None, cache: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    outcome = stages.build_mini(cache=cache, output=folder, arguments={"COMPUTE_CAPABILITIES": "7.5"})
    assert outcome.code == 0, outcome.text
    return folder


@pytest.fixture
def cold_cache() -> Iterator[str]:
    yield from use_cache()


def use_cache() -> Iterator[str]:
    """Name a new cache mount and empty it afterwards: BuildKit does so when a step that mounts it is not cached."""
    name = f"toolkit-tests-{uuid.uuid4().hex[:8]}"
    yield name
    argv = [*stages.compose("bazel-log", arguments={"CACHE_ID": name}), "--no-cache-filter", "bazel-log-copy"]
    subprocess.run(argv, cwd=stages.ROOT, capture_output=True, check=False)


@pytest.fixture
def mini(tmp_path: Path) -> Path:
    return Path(shutil.copytree(stages.MINI, tmp_path / "mini_tensorflow"))


@pytest.fixture
def patches(tmp_path: Path) -> Path:
    return Path(shutil.copytree(stages.ROOT / "bazel_patches", tmp_path / "patches"))
