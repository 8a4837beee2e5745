"""Images of the CPU sets that are shipped, from the published wheels.

Every one for which `docker/base/bootstrap` makes a base is built, once a week: 3.12 is in no Debian.
"""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.docker import stages
from tests.integration.workspace import Workspace
from tests.makers.other_sets import train_once
from toolkit import versions

pytestmark = [pytest.mark.engine, pytest.mark.weekly, pytest.mark.timeout(1800)]

SETS = versions.load_table().published
BASES = ("3.11", "3.13")
CPU = [(item.tensorflow, python) for item in SETS for python in item.python if python in BASES and not item.cuda]


@pytest.fixture(params=CPU, ids="-".join)
def image(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Workspace, tuple[str, ...], str]]:
    tensorflow, python = request.param
    subprocess.run([stages.ROOT / "docker/base/bootstrap", "--python", python], check=True)
    workspace, words = Workspace(tmp_path), ("--tensorflow", tensorflow, "--python", python, "--engine", "docker")
    with workspace.image(*words[:4]) as made:
        print(f"{tensorflow}, Python {python}: {made['bytes']} bytes")
        yield workspace, words, made["image"]


def test_the_image_is_checked_and_trains(image: tuple[Workspace, tuple[str, ...], str]) -> None:
    workspace, words, name = image
    checked = workspace.toolkit("smoke", "--image", name, *words[:2], "--device", "cpu", "--json")
    assert checked.returncode == 0, checked.stdout
    report = json.loads(checked.stdout)
    assert (report["tensorflow"], report["python"].rpartition(".")[0]) == (words[1], words[3])
    assert "test accuracy" in train_once(name)
