"""What the builds of this folder stand on."""

import shutil
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.docker import stages


@pytest.fixture(scope="session")
def cache() -> Iterator[str]:
    """Cache mount that the tests of one session share; nothing of an earlier session is in it."""
    yield from use_cache()


@pytest.fixture(scope="session")
def result(bazel: None, cache: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of a build of the stand-in that went well."""
    folder = tmp_path_factory.mktemp("wheel")
    outcome = stages.build_mini(cache=cache, output=folder, arguments={"COMPUTE_CAPABILITIES": "7.5"})
    assert outcome.code == 0, outcome.text
    return folder


@pytest.fixture
def cold_cache() -> Iterator[str]:
    """Cache mount that nobody has used."""
    yield from use_cache()


def use_cache() -> Iterator[str]:
    """Name a new cache mount; BuildKit empties it when a step that mounts it is not to be cached."""
    name = f"toolkit-tests-{uuid.uuid4().hex[:8]}"
    yield name
    argv = [*stages.compose("bazel-log", arguments={"CACHE_ID": name}), "--no-cache-filter", "bazel-log-copy"]
    subprocess.run(argv, cwd=stages.ROOT, capture_output=True, check=False)


@pytest.fixture
def mini(tmp_path: Path) -> Path:
    """Copy of the stand-in's source tree, to change."""
    return Path(shutil.copytree(stages.MINI, tmp_path / "mini_tensorflow"))


@pytest.fixture
def patches(tmp_path: Path) -> Path:
    """Copy of the patches, to change."""
    return Path(shutil.copytree(stages.ROOT / "bazel_patches", tmp_path / "patches"))
