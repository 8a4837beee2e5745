import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests.integration.workspace import copy_parts, forget_project
from train.command_line import parse

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1200)]

OPTIONS = ("digits", "--depth", "10", "--epochs", "1", "--seed", "1")


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = copy_parts(tmp_path_factory.mktemp("clone"))
    _run(folder, sys.executable, "-m", "toolkit", "doctor", "--write-env")
    yield folder
    forget_project(_name_project(folder))


def _name_project(folder: Path) -> str:
    return f"toolkit-test-{folder.parent.name}"


def _run(folder: Path, *argv: str, **more: str) -> subprocess.CompletedProcess[str]:
    variables = {name: value for name, value in os.environ.items() if not name.startswith("TOOLKIT_")} | more
    # Name another project: `down --volumes` must not remove data that a user has downloaded.
    variables["COMPOSE_PROJECT_NAME"] = _name_project(folder)
    return subprocess.run(argv, cwd=folder, env=variables, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def run(clone: Path) -> Path:
    done = _run(clone, "docker", "compose", "run", "--rm", "-T", "train", *OPTIONS)
    assert done.returncode == 0, done.stderr
    return parse([*OPTIONS, "--out", str(clone / "runs")]).run_dir


def test_training_runs_and_its_outputs_are_the_callers(run: Path) -> None:
    record = run / "manifest.json"
    assert json.loads(record.read_text())["status"] == "complete"
    assert record.stat().st_uid == (os.getuid())


NETWORK = """
import socket, sys
from train.__main__ import start

def reach(server):
    try:
        socket.create_connection(server.getsockname(), timeout=5).close()
        return "reached"
    except OSError as error:
        return error.strerror

with socket.create_server((socket.gethostbyname(socket.gethostname()), 0)) as server:
    print(reach(server))
    code = start(sys.argv[1:])
    print(code, reach(server))
"""


def test_training_on_digits_gives_up_the_network_and_a_download_is_tried(clone: Path) -> None:
    """The service has a network, for data that must be fetched. The job closes it if there is nothing to fetch."""
    compose = ["docker", "compose", "run", "--rm", "-T"]
    options = ["--epochs", "1", "--depth", "10", "--progress", "quiet"]
    done = _run(clone, *compose, "--entrypoint", "python", "train", "-c", NETWORK, "digits", *options)
    assert done.stdout.splitlines()[-2:] == ["reached", "0 Network is unreachable"], done.stderr
    # The proxy refuses every connection: an error that says so shows that the job tried to download.
    proxy = ["-e", "https_proxy=http://127.0.0.1:9", "-e", "http_proxy=http://127.0.0.1:9"]
    done = _run(clone, *compose, *proxy, "train", "cifar100", *options)
    assert done.returncode == 9, done.stderr
    assert "refused" in done.stderr


@pytest.mark.weekly
def test_a_run_of_the_program_goes_on_through_compose(clone: Path) -> None:
    arguments = ["digits", "--epochs", "15", "--depth", "10", "--seed", "77", "--checkpoint-every", "5"]
    begun = subprocess.Popen(
        [sys.executable, "-m", "toolkit", "train", *arguments, "--engine", "docker"],
        cwd=clone,
        env={name: value for name, value in os.environ.items() if not name.startswith("TOOLKIT_")},
    )
    run = parse([*arguments, "--out", str(clone / "runs")]).run_dir
    end = time.monotonic() + 600
    while begun.poll() is None and not list(run.glob("checkpoints/*.json")):
        assert time.monotonic() < end
        time.sleep(0.2)
    begun.send_signal(signal.SIGINT)
    assert begun.wait() == 130
    assert {path.stat().st_uid for path in [run, *run.rglob("*")]} == {os.getuid()}
    done = _run(clone, "docker", "compose", "run", "--rm", "-T", "train", *arguments)
    assert done.returncode == 0, done.stderr
    record = json.loads((run / "manifest.json").read_text())
    assert record["status"] == "complete"
    assert record["resumed_after"]


@pytest.mark.parametrize("token", ["", "0123456789abcdef-of-tests"])
def test_the_server_answers_on_loopback(clone: Path, run: Path, token: str) -> None:
    try:
        served = {"TOOLKIT_SERVE_RUN": run.name, "TOOLKIT_SERVE_PORT": "8765", "TOOLKIT_SERVE_LOG": "json"}
        if token:
            (clone / "token").write_text(token)
            served["TOOLKIT_SERVE_TOKEN_FILE"] = str(clone / "token")
        else:
            served["TOOLKIT_SERVE_HOST"] = "predict.example.org"
        done = _run(clone, "docker", "compose", "up", "--detach", "--wait", "serve", **served)
        assert done.returncode == 0, done.stderr
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        headers = {"Host": "predict.example.org", **({"Authorization": f"Bearer {token}"} if token else {})}
        asked = urllib.request.Request("http://127.0.0.1:8765/metadata", headers=headers)
        with direct.open(asked, timeout=30) as answer:
            facts = json.load(answer)
        if token:
            with pytest.raises(urllib.error.HTTPError, match="401"):
                direct.open("http://127.0.0.1:8765/metadata", timeout=30)
        said = _run(clone, "docker", "compose", "logs", "--no-log-prefix", "serve").stdout
        statuses = re.findall(r'"path": "/metadata", "status": (\d+)', said)
        assert statuses == (["200", "401"] if token else ["200"])
        assert facts["run"] == run.name
        assert facts["digests"]["weights"] == json.loads((run / "manifest.json").read_text())["weights_sha256"]
        assert _run(clone, "docker", "compose", "stop", "serve").returncode == 0
        states = _run(clone, "docker", "compose", "ps", "--all", "--format", "{{.ExitCode}}", "serve").stdout
        assert states.split() == ["0"]
    finally:
        _run(clone, "docker", "compose", "rm", "--stop", "--force", "serve")
