import json
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.docker import stages
from tests.integration.place import Place

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1800)]

SETS = (("2.21.0", "3.11"), ("2.20.0", "3.13"))


@pytest.fixture(params=SETS, ids="-".join)
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
