import os
import re
import subprocess
import sys
import uuid
from http.server import ThreadingHTTPServer
from pathlib import Path

import docker
import pytest

from tests.integration import canary
from tests.server import QuietHandler, running

pytestmark = [
    pytest.mark.engine,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may read the engine's files"),
]

ROOT = Path(__file__).parents[2]


class Hub(QuietHandler):
    """Answers as the Hub does for a data set that asks for a login, and keeps what it was shown."""

    shown: set[str] = set()  # noqa: RUF012 - one for all requests

    def do_GET(self) -> None:
        Hub.shown.add(self.headers.get("Authorization", ""))
        self.answer(401, headers={"X-Error-Code": "GatedRepo", "X-Error-Message": "no"})

    do_HEAD = do_GET


def test_a_token_reaches_the_hub_from_a_container_and_nothing_else(tmp_path: Path) -> None:
    gateway = docker.from_env().networks.get("bridge").attrs["IPAM"]["Config"][0]["Gateway"]
    token, since = f"hf_canary{uuid.uuid4().hex}", canary.now()
    server = ThreadingHTTPServer((gateway, 0), Hub)
    folders = {name: str(tmp_path / name.lower()) for name in ("STATE", "RUNS", "DATA")}
    variables = {**os.environ, **{f"TOOLKIT_{name}": folder for name, folder in folders.items()}}
    variables |= {"HF_TOKEN": token, "HF_ENDPOINT": f"http://{gateway}:{server.server_port}"}
    argv = [sys.executable, "-m", "toolkit", "train", "hf:some/pets", "--engine", "docker", "--verbose"]
    with running(server), canary.watch_processes(token, "cmdline") as seen:
        done = subprocess.run(argv, env=variables, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 9, done.stderr
    assert re.search(r"hf:some/pets needs a login", done.stderr)
    assert f"Bearer {token}" in Hub.shown
    assert seen == []
    assert token not in done.stdout + done.stderr
    root = canary.find_engine_root()
    layers = [root / name for name in ("overlay2", "buildkit", "containers", "image")]
    assert canary.search(token, canary.list_files(*layers, tmp_path, since=since)) == []
