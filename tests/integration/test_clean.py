"""Clean finds what carries our label, and nothing else."""

import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest

from toolkit import clean, naming

pytestmark = pytest.mark.engine


@pytest.fixture
def names(tmp_path: Path) -> Iterator[tuple[str, str]]:
    """Two tiny images and a container of each: one with our label, one without."""
    ours, strangers = (f"toolkit-test/{uuid.uuid4().hex[:8]}:{kind}" for kind in ("ours", "strangers"))
    (tmp_path / "Dockerfile").write_text('FROM scratch\nCOPY Dockerfile /file\nCMD ["/none"]\n')
    for name, label in ((ours, naming.OWNER_LABEL), (strangers, "io.github.somebody.else")):
        build = ["docker", "buildx", "build", "--quiet", "--load", "--tag", name, "--label", f"{label}=toolkit"]
        subprocess.run([*build, str(tmp_path)], check=True, capture_output=True)
        create = ["docker", "create", "--name", name.partition("/")[2].replace(":", "-"), "--label", f"{label}=toolkit"]
        subprocess.run([*create, name], check=True, capture_output=True)
    yield ours, strangers
    for name in (ours, strangers):
        container = name.partition("/")[2].replace(":", "-")
        subprocess.run(["docker", "rm", "--force", container], capture_output=True, check=False)
        subprocess.run(["docker", "rmi", "--force", name], capture_output=True, check=False)


def test_ours_are_found_and_removed_and_strangers_stay(names: tuple[str, str], tmp_path: Path) -> None:
    client = docker.from_env()
    ours, strangers = names
    made = {ours, ours.partition("/")[2].replace(":", "-")}
    found = clean.find(client, tmp_path / "no-state")
    assert made <= {item.name for item in found}
    assert not {item.name for item in found} & {strangers, strangers.partition("/")[2].replace(":", "-")}
    # Only these two: other images of ours are in use by other tests.
    assert [clean.remove(item) for item in found if item.name in made] == [None, None]
    assert not made & {item.name for item in clean.find(client, tmp_path / "no-state")}
    assert client.images.get(strangers)


def test_the_base_stand_in_stays_unless_asked_for(tmp_path: Path) -> None:
    client = docker.from_env()
    if not client.images.list(naming.STANDIN_BASE):
        pytest.skip("this machine builds on the official base image")
    assert naming.STANDIN_BASE not in {item.name for item in clean.find(client, tmp_path)}
    assert naming.STANDIN_BASE in {item.name for item in clean.find(client, tmp_path, with_base=True)}
