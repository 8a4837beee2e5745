"""Images of the run-time sets that are shipped, from the published wheels.

Every CPU set for which `docker/base/bootstrap` makes a base is built: 3.12 is in no Debian. Those with CUDA are checked
where somebody made them: each has more than 5 GB.
"""

import json
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.docker import stages
from tests.integration.place import Place
from tests.integration.test_smoke_images import find_image
from toolkit import versions

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1800)]

SETS = versions.load_table().published
BASES = ("3.11", "3.13")
CPU = [(item.tensorflow, python) for item in SETS for python in item.python if python in BASES and not item.cuda]


@pytest.fixture(params=CPU, ids="-".join)
def image(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Place, tuple[str, ...], str]]:
    tensorflow, python = request.param
    subprocess.run([stages.ROOT / "docker/base/bootstrap", "--python", python], check=True)
    place, words = Place(tmp_path), ("--tensorflow", tensorflow, "--python", python, "--engine", "docker")
    name = f"toolkit/test:{uuid.uuid4().hex[:8]}"
    done = place.toolkit("build-image", *words[:4], "--tag", name, "--json")
    assert done.returncode == 0, done.stderr
    yield place, words, name
    subprocess.run(["docker", "image", "rm", name], capture_output=True, check=True)


def test_the_image_is_checked_and_trains(image: tuple[Place, tuple[str, ...], str]) -> None:
    place, words, name = image
    checked = place.toolkit("smoke", "--image", name, *words[:2], "--device", "cpu", "--json")
    assert checked.returncode == 0, checked.stdout
    report = json.loads(checked.stdout)
    assert (report["tensorflow"], report["python"].rpartition(".")[0]) == (words[1], words[3])
    argv = ["docker", "run", "--rm", "--network=none", name, "digits", "--epochs", "1", "--progress", "plain"]
    trained = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert trained.returncode == 0, trained.stderr
    assert "test accuracy" in trained.stderr + trained.stdout


@pytest.mark.parametrize("item", [item for item in SETS if item.cuda], ids=lambda item: item.requirements)
def test_an_image_with_cuda_holds_what_was_asked_for(item: versions.Locked, tmp_path: Path) -> None:
    name = find_image(item.requirements)
    if name is None:
        pytest.skip(f"no image of {item.requirements} here: toolkit build-image makes one")
    asked = ("--tensorflow", item.tensorflow, "--cuda", item.cuda, "--cudnn", item.cudnn)
    checked = Place(tmp_path).toolkit("smoke", "--image", name, *asked, "--json")
    assert checked.returncode == 0, checked.stdout
    report = json.loads(checked.stdout)
    assert report["tensorflow"] == item.tensorflow
    skipped = {check["id"] for check in report["checks"] if check["result"] == "skip"}
    assert skipped == {f"device.{name}" for name in ("driver", "visible", "capability", "operation", "memory")}
