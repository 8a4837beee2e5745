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
