import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.integration import registry
from tests.integration.docker import stages
from tests.integration.workspace import Workspace
from tests.unit.wheel.maker import CPU_INFO, MEMBER, make_wheel

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    (tmp_path / "user").mkdir()
    return Workspace(tmp_path / "user")


@pytest.fixture
def base(tmp_path: Path) -> Iterator[tuple[str, str]]:
    with registry.serve(stages.STANDIN, tmp_path) as served:
        yield served


def make(folder: Path, glibc: bytes) -> str:
    library = next(Path(yaml.__file__).parent.glob("_yaml*.so"))
    changed = re.sub(rb"\0GLIBC_2\.\d\d\0", b"\0GLIBC_" + glibc + b"\0", library.read_bytes())
    return str(make_wheel(folder, files={MEMBER: CPU_INFO, f"tensorflow/{library.name}": changed}))


def is_here(image: str) -> bool:
    return subprocess.run(["docker", "image", "inspect", image], capture_output=True, check=False).returncode == 0


def test_wheel_that_the_base_cannot_run_is_refused_although_the_base_was_not_here(
    workspace: Workspace, base: tuple[str, str]
) -> None:
    image, _ = base
    arguments = ("build-image", "--wheel", make(workspace.folder, b"2.99"), "--base-image", image)
    assert workspace.toolkit(*arguments, "--dry-run").returncode == 0
    assert not is_here(image), "a dry run pulls nothing"
    done = workspace.toolkit(*arguments)
    assert done.returncode == 3, done.stderr
    assert "needs glibc 2.99, and the base image has 2.41" in done.stderr
    assert not (workspace.folder / "state").exists(), "no log: no build was started"
    fitting = make(workspace.folder, b"2.36")
    assert workspace.toolkit("build-image", "--wheel", fitting, "--base-image", image, "--dry-run").returncode == 0


def test_base_with_another_python_is_refused(workspace: Workspace) -> None:
    image = "toolkit/test:another-python"
    said = (
        "FROM {}\nRUN rm -f /usr/local/bin/python && printf '#!/bin/sh\\necho 2.41 3.13\\n' >/usr/local/bin/python \\\n"
    )
    text = said.format(stages.STANDIN) + " && chmod 755 /usr/local/bin/python\n"
    subprocess.run(["docker", "build", "--tag", image, "-"], input=text, text=True, capture_output=True, check=True)
    try:
        done = workspace.toolkit("build-image", "--wheel", make(workspace.folder, b"2.36"), "--base-image", image)
    finally:
        subprocess.run(["docker", "image", "rm", image], capture_output=True, check=True)
    assert done.returncode == 3, done.stderr
    assert "is for Python 3.11, and the base image has 3.13" in done.stderr


def test_lock_holds_the_registrys_digest_before_and_after_the_pull(workspace: Workspace, base: tuple[str, str]) -> None:
    image, digest = base
    done = workspace.toolkit("lock", "--base-image", image, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["pins"]["base-digest"] == digest
    subprocess.run(["docker", "pull", "--quiet", image], check=True, capture_output=True)
    assert is_here(image)
    done = workspace.toolkit("lock", "--check", "--base-image", image)
    assert done.returncode == 0, done.stderr
    done = workspace.toolkit("build-wheel", "--dry-run", "--json", "--base-image", image)
    assert f"BASE_IMAGE={image}@{digest}" in json.loads(done.stdout)["commands"][0]
    for name, code in ((f"{image}@{digest}", 0), (f"{image}@sha256:{'0' * 64}", 1)):
        outcome = stages.build("folders", arguments={"BASE_IMAGE": name})
        assert outcome.code == code, outcome.text
