import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.integration.docker import stages
from tests.tiers import weekly
from toolkit.base import naming, ownership
from toolkit.engine import container
from toolkit.jobs import inference

pytestmark = pytest.mark.engine

IMAGE = "toolkit/train:job-tests"
OPTIONS = ("digits", "--depth", "10", "--threads", "2", "--progress", "plain")


@pytest.fixture(scope="module")
def image() -> Iterator[str]:
    outcome = stages.build("train", tag=IMAGE)
    assert outcome.code == 0, outcome.text
    yield IMAGE
    subprocess.run(["docker", "image", "rm", IMAGE], capture_output=True, check=False)


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    folder = tmp_path / "runs"
    folder.mkdir()
    folder.chmod(0o777)
    return folder


def command(image: str, runs: Path, *arguments: str, name: str = "") -> list[str]:
    named = ["--name", name] if name else []
    mount = f"--volume={runs}:/runs"
    return ["docker", "run", "--rm", *named, *stages.HARDENED, mount, image, *OPTIONS, *arguments, "--out", "/runs"]


def read_manifest(runs: Path) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(next(runs.glob("*/manifest.json")).read_text(encoding="utf-8"))
    return value


def test_host_and_container_give_the_same_bits(image: str, runs: Path, tmp_path: Path) -> None:
    subprocess.run(command(image, runs, "--epochs", "2"), check=True)
    own = [sys.executable, "-m", "train", *OPTIONS, "--epochs", "2", "--out", str(tmp_path / "host")]
    subprocess.run(own, check=True, cwd=stages.ROOT)
    inside, outside = read_manifest(runs), read_manifest(tmp_path / "host")
    packages = set(inside["software"]) - {"python"}  # the base image may have another patch release
    assert {name: inside["software"][name] for name in packages} == {
        name: outside["software"].get(name) for name in packages
    }
    assert inside["weights_sha256"] == outside["weights_sha256"]


def test_docker_stop_saves_and_the_same_command_goes_on(image: str, runs: Path) -> None:
    name = f"toolkit-test-{uuid.uuid4().hex[:8]}"
    process = subprocess.Popen(command(image, runs, "--epochs", "12", name=name), stderr=subprocess.PIPE, text=True)
    assert process.stderr
    for line in process.stderr:
        if line.startswith("epoch 2/"):
            break
    began = time.monotonic()
    subprocess.run(["docker", "stop", "--time", "60", name], check=True, capture_output=True)
    assert process.wait(timeout=60) == 130
    assert time.monotonic() - began < 30
    again = subprocess.Popen(command(image, runs, "--epochs", "12", name=name), stderr=subprocess.PIPE, text=True)
    assert again.stderr
    assert any(line.startswith("resumed after step") for line in again.stderr)
    assert again.wait(timeout=300) == 0
    assert read_manifest(runs)["result"]["epochs"] == 12


@pytest.mark.parametrize("number", [signal.SIGINT, weekly(signal.SIGTERM)])
def test_an_interrupt_is_said_once_with_what_is_saved(image: str, tmp_path: Path, number: signal.Signals) -> None:
    """As a user does it; ``image`` has made the layers."""
    variables = {**os.environ, "TOOLKIT_STATE": str(tmp_path / "state"), "TOOLKIT_RUNS": str(tmp_path / "runs")}
    argv = [sys.executable, "-m", "toolkit", "train", *OPTIONS, "--epochs", "50", "--engine", "docker"]
    for expected in (["epoch 2/"], ["resumed after step", "epoch "]):
        process = subprocess.Popen(argv, cwd=stages.ROOT, env=variables, stderr=subprocess.PIPE, text=True)
        assert process.stderr
        for begin in expected:
            assert any(line.startswith(begin) for line in process.stderr)
        process.send_signal(number)
        after = process.stderr.read()
        assert process.wait(timeout=60) == 130, after
        (said,) = re.findall("(?im)^(?:stopped|interrupted).*", after)
        assert "saved" in said
        assert "error" not in after
    label = f"label={naming.STATE_LABEL}={ownership.find(tmp_path / 'state')}"
    left = ["docker", "ps", "--all", "--quiet", "--filter", label]
    assert not subprocess.run(left, capture_output=True, text=True, check=True).stdout


def test_images_are_classified_in_a_container_by_names_of_the_host(image: str, runs: Path, tmp_path: Path) -> None:
    subprocess.run(command(image, runs, "--epochs", "1"), check=True)
    photos = tmp_path / "photos"
    photos.mkdir()
    Image.new("RGB", (30, 20)).save(photos / "black.png")
    (photos / "broken.png").touch()
    workspace = next(runs.glob("*/manifest.json")).parent
    job = inference.plan_prediction(workspace, [str(photos), str(photos / "black.png")], [], ["--json"])
    done = subprocess.run(
        container.describe(job, image=image).to_command(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 9, done.stderr
    black, broken, again = json.loads(done.stdout)["predictions"]
    assert black["image"] == again["image"] == str(photos / "black.png")
    assert black["guesses"] == again["guesses"]
    assert len(black["guesses"]) == 5
    assert broken["image"] == str(photos / "broken.png")
    assert "no bytes" in broken["problem"]


def test_a_run_is_served_on_loopback_and_the_server_opens_no_connection(image: str, runs: Path) -> None:
    """As `toolkit serve` does it, in a network of its own, by the command that it prints."""
    subprocess.run(command(image, runs, "--epochs", "1"), check=True)
    workspace = next(runs.glob("*/manifest.json")).parent
    network = container.plan_network()
    job = inference.plan_serving(workspace, inference.Serving(host="127.0.0.1", port=8766), network)
    described = container.describe(job, image=image)
    for argv in network.make:
        subprocess.run(argv, check=True, capture_output=True)
    docker, start, *options = described.to_command()
    process = subprocess.Popen([docker, start, "--name", described.name, *options], stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr
        assert any("is served on" in line for line in process.stderr)
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with direct.open("http://127.0.0.1:8766/metadata", timeout=30) as answer:
            assert json.load(answer)["run"] == workspace.name
        ask = ["docker", "exec", described.name, "sh", "-c", "grep -h ^Seccomp_filters: /proc/[0-9]*/status"]
        told = subprocess.run(ask, capture_output=True, text=True, check=False).stdout
        # That of Docker, and for the server its own.
        counts = [int(line.split()[1]) for line in told.splitlines()]
        assert max(counts) == min(counts) + 1, told
        subprocess.run(["docker", "stop", described.name], check=True, capture_output=True)
        assert process.wait(60) == 0
    finally:
        process.kill()
        subprocess.run(["docker", "rm", "--force", described.name], check=False, capture_output=True)
        for argv in network.remove:
            subprocess.run(argv, check=True, capture_output=True)
