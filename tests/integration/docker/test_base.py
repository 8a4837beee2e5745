import os
import subprocess
import tarfile
from collections.abc import Iterator
from datetime import datetime
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


def read_epoch(tag: str) -> int:
    argv = ["docker", "image", "inspect", "--format", "{{.Created}}", tag]
    created = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()
    return int(datetime.fromisoformat(created).timestamp())


@pytest.fixture
def tag() -> Iterator[str]:
    yield TAG
    subprocess.run(["docker", "image", "rm", TAG], capture_output=True, check=False)


needs_debian = pytest.mark.skipif(
    os.geteuid() != 0 or not Path("/usr/bin/mmdebstrap").exists(), reason="bootstrapping takes root and mmdebstrap"
)


@needs_debian
@pytest.mark.weekly
def test_one_mirror_state_gives_one_image(tag: str, tmp_path: Path) -> None:
    def build(name: str) -> Path:
        done = bootstrap("--force", "--tag", tag, "--archive", str(tmp_path / name))
        assert done.returncode == 0, done.stderr
        return tmp_path / name

    archive = build("one.tar")
    made = read_id(tag)
    if made != read_id(stages.STANDIN):  # the mirror has changed since then, or STANDIN is the official image
        assert archive.read_bytes() == build("two.tar").read_bytes()
        assert read_id(tag) == made
    # Owners, modes and times in the archive are constant: they must not make two archives of one image differ.
    with tarfile.open(archive) as members:
        assert {(entry.mtime, entry.uid, entry.gid, entry.mode) for entry in members} == {
            (read_epoch(tag), 0, 0, 0o644)
        }
        assert members.getnames() == ["config.json", "layer.tar", "manifest.json"]
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
