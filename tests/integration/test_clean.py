import json
import os
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import docker
import pytest

from tests.integration.docker import stages
from tests.integration.small_engine import SmallEngine, start
from toolkit import clean, naming

pytestmark = pytest.mark.engine


@dataclass
class Made:
    ours: str
    container: str
    derived: str
    beside: str
    stranger: str


def _docker(*argv: str) -> None:
    subprocess.run(["docker", *argv], check=True, capture_output=True)


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Made]:
    word = uuid.uuid4().hex[:12]
    made = Made(
        ours=f"toolkit/train:test-{word}",
        container=f"toolkit-test-{word}",
        derived=f"somebody/app:{word}",
        beside=f"toolkit/train:mine-{word[::-1]}x",
        stranger=f"somebody-app-{word}",
    )
    (tmp_path / "Dockerfile").write_text('FROM scratch\nCOPY Dockerfile /file\nCMD ["/none"]\n')
    labels = (f"{naming.OWNER_LABEL}=toolkit", f"{naming.PLAN_LABEL}=sha256:{word}{'0' * 52}")
    options = [part for label in labels for part in ("--label", label)]
    _docker("buildx", "build", "--load", "--tag", made.ours, *options, str(tmp_path))
    (tmp_path / "Dockerfile").write_text(f"FROM {made.ours}\nENV MINE=1\n")
    _docker("buildx", "build", "--load", "--tag", made.derived, "--tag", made.beside, str(tmp_path))
    _docker("create", "--name", made.container, "--label", f"{naming.JOB_LABEL}=test", made.ours)
    _docker("create", "--name", made.stranger, made.derived)
    yield made
    for name in (made.container, made.stranger):
        subprocess.run(["docker", "rm", "--force", name], capture_output=True, check=False)
    for name in (made.derived, made.beside, made.ours):
        subprocess.run(["docker", "rmi", "--force", name], capture_output=True, check=False)


def test_ours_are_found_and_removed_and_what_others_built_on_them_stays(made: Made, tmp_path: Path) -> None:
    client = docker.from_env()
    found = {item.name: item for item in clean.find(client, tmp_path / "no-state")}
    assert {made.ours, made.container} <= found.keys()
    assert not {made.derived, made.beside, made.stranger} & found.keys()
    assert {made.derived, made.beside} <= {*clean.find_others(client)}
    assert made.ours not in clean.find_others(client)
    # Remove only these two: other tests use the toolkit's other images.
    assert clean.remove(found[made.container]) == ""
    assert clean.remove(found[made.ours]) == ""
    assert not {made.ours, made.container} & {item.name for item in clean.find(client, tmp_path / "no-state")}
    assert {made.derived, made.beside} <= {*client.images.get(made.derived).tags}
    assert client.containers.get(made.stranger)


def test_the_network_of_a_killed_launch_is_removed(tmp_path: Path) -> None:
    client = docker.from_env()
    name = f"toolkit-test-{uuid.uuid4().hex[:12]}"
    _docker("network", "create", "--internal", "--label", f"{naming.JOB_LABEL}=launch", name)
    _docker("create", "--name", name, "--network", name, stages.STANDIN)
    try:
        (found,) = (item for item in clean.find(client, tmp_path) if item.name == name)
        assert clean.remove(found) == ""
        assert name not in {item.name for item in clean.find(client, tmp_path)}
    finally:
        _docker("rm", "--force", name)
        subprocess.run(["docker", "network", "rm", name], capture_output=True, check=False)


def test_the_base_stand_in_stays_unless_asked_for(tmp_path: Path) -> None:
    client = docker.from_env()
    if not client.images.list(naming.name_standin("3.11")):
        pytest.skip("this machine builds on the official base image")
    assert naming.name_standin("3.11") not in {item.name for item in clean.find(client, tmp_path)}
    assert naming.name_standin("3.11") in {item.name for item in clean.find(client, tmp_path, with_base=True)}


@pytest.fixture
def bare_engine() -> Iterator[SmallEngine]:
    """Start an engine that has only the base image: this test removes everything of the toolkit in its engine."""
    with tempfile.TemporaryDirectory() as folder, start(Path(folder), gib=1) as engine:
        engine.load(stages.STANDIN)
        yield engine


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may have an engine of its own")
@pytest.mark.timeout(600)
def test_caches_of_bazel_are_named_and_removed(bare_engine: SmallEngine, tmp_path: Path) -> None:
    """The test has its own engine, because a cache removed by mistake would cost hours."""
    (tmp_path / "Dockerfile").write_text(
        "ARG BASE\nFROM ${BASE}\nARG NAME\n"
        f"RUN --mount=type=cache,id={naming.BAZEL_MOUNT}${{NAME}},target=/cache head -c 3000000 /dev/zero >/cache/x\n"
        "RUN --mount=type=cache,id=stranger,target=/cache head -c 1000 /dev/zero >/cache/x\n"
    )
    variables = os.environ | bare_engine.variables
    for name in ("tensorflow", "verify-0123456789ab"):
        argv = ["docker", "buildx", "build", "--build-arg", f"BASE={stages.STANDIN}", "--build-arg", f"NAME={name}"]
        subprocess.run([*argv, str(tmp_path)], env=variables, capture_output=True, check=True)

    def run(*arguments: str) -> dict[str, list[str]]:
        argv = [sys.executable, "-m", "toolkit", "clean", "--json", *arguments]
        workspace = variables | {"PYTHONPATH": str(stages.ROOT), "XDG_CACHE_HOME": str(tmp_path / "user")}
        done = subprocess.run(argv, cwd=tmp_path, env=workspace, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
        value: dict[str, list[str]] = json.loads(done.stdout)
        return value

    cleaned = run()
    assert "cache verify-0123456789ab (3MB)" in cleaned["removed"]
    (left,) = [line for line in cleaned["left"] if line.startswith("cache ")]
    assert left.startswith("cache tensorflow (3MB): --with-cache")
    assert "cache tensorflow (3MB)" in run("--with-cache")["removed"]
    du = ["docker", "buildx", "du", "--verbose", "--filter", "type=exec.cachemount"]
    rest = subprocess.run(du, env=variables, capture_output=True, text=True, check=True).stdout
    assert naming.BAZEL_MOUNT not in rest
    assert 'with id "/stranger"' in rest, "what is not ours stays"
