"""Weekly: packs the training image of 2 GB, of which 0.6 GB remain, and trains from it. Everything is removed again."""

import json
import os
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.docker import apptainer, stages
from tests.integration.docker.apptainer import NAMESPACES, Host
from toolkit.base.errors import EngineError, IntegrityError, InterruptionError
from toolkit.engine.user import IMAGE_USER

pytestmark = [pytest.mark.engine, pytest.mark.weekly, pytest.mark.timeout(1800)]

TRAIN = "toolkit/train:apptainer-tests"
OPTIONS = ("digits", "--depth", "10", "--epochs", "15", "--checkpoint-every", "20")
ARCHIVE = ("--archive", "train.tar")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of the image's user, with the archive of the training image."""
    folder = tmp_path_factory.mktemp("apptainer")
    variables = {**os.environ, "TOOLKIT_STATE": str(tmp_path_factory.mktemp("state"))}
    argv = [sys.executable, "-m", "toolkit", "build-image", "--tag", TRAIN]
    subprocess.run(argv, check=True, cwd=stages.ROOT, env=variables)
    subprocess.run(["docker", "save", "--output", folder / "train.tar", TRAIN], check=True)
    (folder / "train.tar").chmod(0o644)
    os.chown(folder, IMAGE_USER, IMAGE_USER)
    return folder


@pytest.fixture(scope="module")
def host(folder: Path) -> Iterator[Host]:
    with apptainer.start(folder, *NAMESPACES) as host:
        yield host


@pytest.fixture(scope="module")
def expected(folder: Path) -> str:
    """Return the digest of the weights that the same image gives by Docker."""
    runs = folder / "docker"
    runs.mkdir()
    os.chown(runs, IMAGE_USER, IMAGE_USER)
    argv = ["docker", "run", "--rm", "--network=none", f"--volume={runs}:/runs", TRAIN, *OPTIONS, "--out=/runs"]
    subprocess.run([*argv, "--progress=quiet"], check=True, capture_output=True)
    return str(read_manifest(runs)["weights_sha256"])


@pytest.fixture(scope="module", autouse=True)
def remove(folder: Path) -> Iterator[None]:
    yield
    subprocess.run(["rm", "-rf", folder], check=False)
    subprocess.run(["docker", "image", "rm", TRAIN], check=False, capture_output=True)


def read_manifest(runs: Path) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(next(runs.glob("*/manifest.json")).read_text(encoding="utf-8"))
    return value


def test_the_chain_gives_the_weights_of_docker_once_checked_and_packed(host: Host, folder: Path, expected: str) -> None:
    done = host("up", *OPTIONS, *ARCHIVE, "--json")
    assert done.returncode == 0, done.stderr
    value = json.loads(done.stdout)
    assert value["engine"]["name"] == "apptainer"
    assert value["smoke"]["verdict"] == "pass"
    inspected = subprocess.run(["docker", "image", "inspect", TRAIN], check=True, capture_output=True).stdout
    assert value["environment"]["digest"] == json.loads(inspected)[0]["Id"]
    assert value["run"]["weights_sha256"] == expected
    (sif,) = folder.glob(".toolkit/*/image.sif")
    packed = sif.stat().st_mtime_ns
    again = host("up", *OPTIONS, *ARCHIVE, "--json")
    assert json.loads(again.stdout)["environment"]["reused"]
    assert sif.stat().st_mtime_ns == packed
    verified = host("verify", str(next(folder.glob("runs/*")).relative_to(folder)), "--json")
    assert verified.returncode == 0, verified.stderr
    states = {item["id"]: item["state"] for item in json.loads(verified.stdout)["findings"]}
    assert states["image.sif"] == "ok"
    assert "ok      apptainer" in host("doctor", "--offline").stdout
    assert not host.list_jobs()


def test_an_interrupted_job_saves_ends_and_goes_on(host: Host, folder: Path, expected: str) -> None:
    argv = ["docker", "exec", "--env=TOOLKIT_RUNS=broken", host.name]
    argv += ["python3.11", "-m", "toolkit", "train", *OPTIONS, *ARCHIVE]
    with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True) as process:
        while not list(folder.glob("broken/*/checkpoints/*.json")):
            assert process.poll() is None, process.communicate()
            time.sleep(0.05)
        assert not host.execute("pkill", "--full", "-TERM", "^python3.11 -m toolkit train").returncode
        _, said = process.communicate()
    assert process.returncode == InterruptionError.exit_code, said
    assert "the state is saved" in said
    assert not host.list_jobs()
    done = host.execute("env", "TOOLKIT_RUNS=broken", *argv[4:])
    assert done.returncode == 0, done.stderr
    found = read_manifest(folder / "broken")
    assert found["resumed_after"]
    assert found["weights_sha256"] == expected


def test_a_damaged_archive_and_a_machine_without_namespaces_are_refused(host: Host, folder: Path) -> None:
    with tarfile.open(folder / "train.tar") as stored:
        layer = min((item for item in stored if item.size > 1 << 20), key=lambda item: item.size)
    with (folder / "train.tar").open("r+b") as stream:
        stream.seek(layer.offset_data + layer.size // 2)
        byte = stream.read(1)
        stream.seek(-1, os.SEEK_CUR)
        stream.write(bytes([byte[0] ^ 1]))
    done = host.execute("env", "TOOLKIT_STATE=other", "python3.11", "-m", "toolkit", "train", *OPTIONS, *ARCHIVE)
    assert done.returncode == IntegrityError.exit_code, done.stderr
    assert not list(folder.glob("other/*/image.sif"))
    with apptainer.start(folder) as confined:
        done = confined("train", *OPTIONS, *ARCHIVE)
    assert done.returncode == EngineError.exit_code
    assert "apptainer cannot run images for you" in done.stderr
