import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import docker
import pytest

from toolkit.base import keys, naming

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1200)]

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("chain")


@pytest.fixture(scope="module")
def variables(folder: Path) -> dict[str, str]:
    return {
        **os.environ,
        "TOOLKIT_STATE": str(folder / "state"),
        "TOOLKIT_RUNS": str(folder / "runs"),
        "TOOLKIT_DATA": str(folder / "data"),
        "TOOLKIT_ENGINE": "docker",
    }


def _toolkit(variables: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "toolkit", *arguments]
    return subprocess.run(argv, env=variables, cwd=ROOT, capture_output=True, text=True, check=False)


def _containers() -> list[str]:
    client = docker.from_env()
    return [str(item.name) for item in client.containers.list(all=True, filters={"label": naming.JOB_LABEL})]


@pytest.fixture(scope="module")
def chain(variables: dict[str, str], folder: Path) -> dict[str, object]:
    keys.make(folder / "key")
    signed = variables | {"SIGNING_KEY": (folder / "key").read_text()}
    done = _toolkit(signed, "up", "digits", "--epochs", "1", "--sign", "env:SIGNING_KEY", "--json")
    assert done.returncode == 0, done.stderr
    value: dict[str, object] = json.loads(done.stdout)
    return value


def test_the_chain_runs_and_each_link_names_the_one_before(chain: dict[str, object], folder: Path) -> None:
    run = json.loads(next(folder.glob("runs/*/manifest.json")).read_text())
    image = json.loads(next(folder.glob("state/image-train-cpu-*/manifest.json")).read_text())
    assert run["status"] == "complete"
    assert (run["parent"]["digest"], run["parent"]["parent"]) == (image["digest"], image["parent"])
    assert image["parent"]["kind"] == "lock"
    assert chain["smoke"]["verdict"] == "pass"  # type: ignore[index]


def test_each_link_is_signed(chain: dict[str, object], folder: Path, variables: dict[str, str]) -> None:
    run = next(folder.glob("runs/*/manifest.json"))
    done = _toolkit(variables, "verify", str(run), "--trust", str(folder / "key.pub"), "--json")
    assert done.returncode == 0, done.stderr
    found = [item["id"] for item in json.loads(done.stdout)["findings"] if item["id"].endswith("signature")]
    assert found == ["signature", "image.signature", "smoke.signature"]
    line = (folder / "key").read_text().splitlines()[1].encode()
    assert [path for path in folder.rglob("*") if path.is_file() and line in path.read_bytes()] == [folder / "key"]


def test_outputs_belong_to_the_owner_of_the_folder_around_them(chain: dict[str, object], folder: Path) -> None:
    owners = {path.stat().st_uid for path in [folder / "runs", *(folder / "runs").rglob("*")]}
    assert owners == {os.getuid()}


def test_no_container_is_left(chain: dict[str, object]) -> None:
    assert _containers() == []


def test_the_second_time_everything_is_reused(chain: dict[str, object], variables: dict[str, str]) -> None:
    start = time.monotonic()
    done = _toolkit(variables, "up", "digits", "--epochs", "1")
    assert done.returncode == 0
    assert "image    reused" in done.stderr
    assert "(reused)" in done.stderr
    assert "nothing to do" in done.stderr
    # This is no benchmark: a rebuild or a second run of the checks would take many times as long.
    assert time.monotonic() - start < 60


@pytest.mark.weekly
@pytest.mark.parametrize("asked", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupt_stops_the_container_and_the_run_goes_on_later(
    chain: dict[str, object], variables: dict[str, str], folder: Path, asked: signal.Signals
) -> None:
    arguments = ["train", "digits", "--epochs", "6", "--seed", str(int(asked))]
    argv = [sys.executable, "-m", "toolkit", *arguments]
    process = subprocess.Popen(argv, env=variables, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    heard = next(line for line in process.stderr if line.startswith("epoch 2/"))
    process.send_signal(asked)
    assert process.wait(timeout=90) == 130, heard
    assert _containers() == []
    done = _toolkit(variables, *arguments)
    assert done.returncode == 0, done.stderr
    assert "resum" in done.stderr.lower()


@pytest.mark.parametrize("seconds", [0.3, 0.6])
def test_an_interrupt_at_any_moment_leaves_no_container(
    chain: dict[str, object], variables: dict[str, str], seconds: float
) -> None:
    image = str(chain["environment"]["reference"])  # type: ignore[index]
    argv = [sys.executable, "-m", "toolkit", "smoke", "--image", image]
    process = subprocess.Popen(argv, env=variables, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    time.sleep(seconds)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=90)
    assert process.returncode == 130
    assert "Traceback" not in said
    assert _containers() == []
