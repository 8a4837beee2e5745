"""The stand-in for the base image: the same bytes for the same mirror state."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.docker import stages

pytestmark = pytest.mark.engine

TAG = "toolkit/base:tests"


def bootstrap(*options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    argv = [str(stages.ROOT / "docker/base/bootstrap"), *options]
    return subprocess.run(argv, env={**os.environ, **environment}, capture_output=True, text=True, check=False)


def read_id(tag: str) -> str:
    argv = ["docker", "image", "inspect", "--format", "{{.Id}}", tag]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def tag() -> Iterator[str]:
    yield TAG
    subprocess.run(["docker", "image", "rm", TAG], capture_output=True, check=False)


needs_debian = pytest.mark.skipif(
    os.geteuid() != 0 or not Path("/usr/bin/mmdebstrap").exists(), reason="bootstrapping takes root and mmdebstrap"
)


@needs_debian
@pytest.mark.slow
def test_one_mirror_state_gives_one_image(tag: str, tmp_path: Path) -> None:
    ids, archives = set(), set()
    for name in ("one.tar", "two.tar"):
        done = bootstrap("--force", "--tag", tag, "--archive", str(tmp_path / name))
        assert done.returncode == 0, done.stderr
        ids.add(read_id(tag))
        archives.add((tmp_path / name).read_bytes())
    assert len(ids) == 1
    assert len(archives) == 1
    again = bootstrap("--tag", tag)
    assert "exists already" in again.stdout


@needs_debian
def test_a_mirror_without_the_suite_is_named(tag: str, tmp_path: Path) -> None:
    (tmp_path / "sources.list").touch()
    configuration = tmp_path / "apt.conf"
    configuration.write_text(
        f'Dir::Etc::sourcelist "{tmp_path}/sources.list";\nDir::Etc::sourceparts "{tmp_path}/none";\n'
    )
    done = bootstrap("--force", "--tag", tag, APT_CONFIG=str(configuration), TOOLKIT_MIRROR=f"file://{tmp_path}")
    assert done.returncode == 1
    assert "none of this machine's apt sources carries Debian trixie" in done.stderr
    assert "try: TOOLKIT_MIRROR=" in done.stderr


def test_a_missing_engine_is_named() -> None:
    done = bootstrap(DOCKER_HOST="unix:///nowhere/docker.sock")
    assert done.returncode == 1
    assert "no Docker engine answers" in done.stderr


def test_an_unknown_option_is_refused() -> None:
    done = bootstrap("--wrong")
    assert done.returncode == 2
    assert "usage:" in done.stderr
