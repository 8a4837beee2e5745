"""Clean finds what carries our label, and nothing else."""

import subprocess
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import docker
import pytest

from toolkit import clean, naming

pytestmark = pytest.mark.engine


@dataclass
class Made:
    """What the engine was given: an image and a container of ours, and two of somebody who built on ours."""

    ours: str
    container: str
    derived: str
    stranger: str


def _docker(*argv: str) -> None:
    subprocess.run(["docker", *argv], check=True, capture_output=True)


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Made]:
    word = uuid.uuid4().hex[:8]
    made = Made(f"toolkit/test:{word}", f"toolkit-test-{word}", f"somebody/app:{word}", f"somebody-app-{word}")
    (tmp_path / "Dockerfile").write_text('FROM scratch\nCOPY Dockerfile /file\nCMD ["/none"]\n')
    _docker("buildx", "build", "--load", "--tag", made.ours, "--label", f"{naming.OWNER_LABEL}=toolkit", str(tmp_path))
    (tmp_path / "Dockerfile").write_text(f"FROM {made.ours}\nENV MINE=1\n")
    _docker("buildx", "build", "--load", "--tag", made.derived, str(tmp_path))
    _docker("create", "--name", made.container, "--label", f"{naming.JOB_LABEL}=test", made.ours)
    _docker("create", "--name", made.stranger, made.derived)
    yield made
    for name in (made.container, made.stranger):
        subprocess.run(["docker", "rm", "--force", name], capture_output=True, check=False)
    for name in (made.derived, made.ours):
        subprocess.run(["docker", "rmi", "--force", name], capture_output=True, check=False)


def test_ours_are_found_and_removed_and_what_others_built_on_them_stays(made: Made, tmp_path: Path) -> None:
    client = docker.from_env()
    found = {item.name: item for item in clean.find(client, tmp_path / "no-state")}
    assert {made.ours, made.container} <= found.keys()
    assert not {made.derived, made.stranger} & found.keys()
    # Only these two: other images of ours are in use by other tests.
    assert clean.remove(found[made.container]) == ""
    assert clean.remove(found[made.ours]) == ""
    assert not {made.ours, made.container} & {item.name for item in clean.find(client, tmp_path / "no-state")}
    assert client.images.get(made.derived)
    assert client.containers.get(made.stranger)


def test_the_base_stand_in_stays_unless_asked_for(tmp_path: Path) -> None:
    client = docker.from_env()
    if not client.images.list(naming.STANDIN_BASE):
        pytest.skip("this machine builds on the official base image")
    assert naming.STANDIN_BASE not in {item.name for item in clean.find(client, tmp_path)}
    assert naming.STANDIN_BASE in {item.name for item in clean.find(client, tmp_path, with_base=True)}
