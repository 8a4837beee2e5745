"""Tests of ``serve`` behind the proxies of ``examples``."""

import http.client
import json
import re
import shlex
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.docker import proxies, stages
from tests.unit.train import runs

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]

IMAGE = "toolkit/train:proxy-tests"

CLIENT = """
import base64, http.client, io, json, ssl, subprocess, sys, threading, time
from concurrent.futures import ThreadPoolExecutor
from PIL import Image

host, reload = sys.argv[1:]
file = io.BytesIO()
Image.new("L", (8, 8)).save(file, "PNG")
body = json.dumps({"images": [{"name": "a.png", "content": base64.b64encode(file.getvalue()).decode()}]})
login = {"Authorization": "Basic " + base64.b64encode(b"alice:secret").decode()}


def ask(method="POST", path="/predictions", body=body, **headers):
    opened = http.client.HTTPSConnection(host, context=ssl._create_unverified_context(), timeout=30)
    try:
        opened.connect()
    except ssl.SSLError:  # Caddy has no certificate for a moment when it reads its file again; nothing was sent yet
        time.sleep(0.5)
        opened.connect()
    opened.request(method, path, body, {"Content-Type": "application/json", **headers})
    answer = opened.getresponse()
    answer.read()
    return answer.status


until = time.monotonic() + 60
while True:
    try:
        ask("GET", "/health", None)
        break
    except OSError:
        assert time.monotonic() < until
        time.sleep(0.2)
found = {
    "health": ask("GET", "/health", None),
    "no login": ask(),
    "page": ask("GET", "/", None, **login),
    "browser": ask(**login, Origin=f"https://{host}"),
    "other page": ask(**login, Origin="https://evil.example"),
    "too large": ask(body="x" * (17 << 20), **login),
}
with ThreadPoolExecutor(8) as pool:
    sent = [pool.submit(ask, **login) for _ in range(200)]
    subprocess.run(["sh", "-c", reload], check=True, capture_output=True)
    found["eight clients"] = sorted({each.result() for each in sent})
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def container(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the container in which a run is served."""
    run = runs.make(tmp_path_factory.mktemp("proxies"), "--depth", "10", "--epochs", "1")
    outcome = stages.build("train", tag=IMAGE)
    assert outcome.code == 0, outcome.text
    with proxies.start(IMAGE, run.parent) as name:
        serve = ["python", "-P", "-m", "train", "serve", f"/runs/{run.name}", "--allow-host", proxies.HOST]
        proxies.call(name, f"{shlex.join(serve)} --log-format json > /tmp/log 2>&1 &")
        proxies.call(name, "until grep -q 'is served' /tmp/log; do sleep 0.2; done")
        yield name
    subprocess.run(["docker", "image", "rm", IMAGE], capture_output=True, check=False)


@pytest.mark.parametrize("proxy", list(proxies.PROXIES))
def test_a_proxy_passes_requests_on_and_loses_none_when_it_reads_its_file_again(container: str, proxy: str) -> None:
    proxies.call(container, f"{proxies.PROXIES[proxy]} >/dev/null 2>&1")
    try:
        found = json.loads(
            proxies.call(container, shlex.join(["python", "-c", CLIENT, proxies.HOST, proxies.RELOADS[proxy]]))
        )
    finally:
        proxies.call(
            container, "nginx -s stop; while pidof nginx; do sleep 0.1; done" if proxy == "nginx" else "caddy stop"
        )
    assert found == {
        "health": 200,
        "no login": 401,
        "page": 200,
        "browser": 200,
        "other page": 403,
        "too large": 413,
        "eight clients": [200],
    }
    log = proxies.call(container, "grep '^{' /tmp/log")
    refused = [value["refused"] for value in map(json.loads, log.splitlines()) if value["status"] == 403]
    assert set(refused) == {"a page of another origin may not use the server"}


def test_a_server_in_a_container_takes_a_token_behind_a_proxy_and_lists_the_client_that_it_names(
    container: str, tmp_path: Path
) -> None:
    """nginx is on the network of this machine. Its file has no login, as the page says of one with a token."""
    port, front, token = find_port(), find_port(), "0123456789abcdef"
    run = proxies.call(container, "ls /runs").strip()
    mounts = json.loads(subprocess.check_output(["docker", "inspect", "--format", "{{json .Mounts}}", container]))
    (folder,) = (mount["Source"] for mount in mounts if mount["Destination"] == "/runs")
    text = re.sub(".*auth_basic.*", "", (stages.ROOT / "examples/nginx.conf").read_text())
    text = text.replace("127.0.0.1:8000", f"127.0.0.1:{port}").replace("listen 443 ", f"listen 127.0.0.1:{front} ")
    (tmp_path / "nginx.conf").write_text(text)
    start = ["docker", "run", "--rm", "--detach", "--init", "--user=0"]
    serve = ["python", IMAGE, "-P", "-m", "train", "serve", f"/runs/{run}", "--published", "--allow-host", proxies.HOST]
    server = [f"--publish=127.0.0.1:{port}:8000", f"--volume={folder}:/runs:ro", f"--env=TOOLKIT_SERVE_TOKEN={token}"]
    proxy = ["--network=host", f"--volume={tmp_path / 'nginx.conf'}:/etc/nginx/conf.d/toolkit.conf:ro", proxies.IMAGE]
    argvs = ([*server, "--entrypoint", *serve], proxy)
    names = [subprocess.check_output([*start, *each], text=True).strip() for each in argvs]
    context = ssl._create_unverified_context()  # noqa: S323 - the certificate is made by the test

    def ask(path: str, **headers: str) -> int:
        address = ("127.0.0.1", front)
        opened = http.client.HTTPSConnection(*address, context=context, source_address=("127.0.0.7", 0), timeout=30)
        opened.request("GET", path, headers={"Host": proxies.HOST, "X-Forwarded-For": "192.0.2.9", **headers})
        return opened.getresponse().status

    try:
        proxies.call(names[1], "nginx")
        until = time.monotonic() + 120
        while ask("/health") != 200:
            assert time.monotonic() < until
            time.sleep(0.2)
        assert (ask("/metadata"), ask("/metadata", Authorization=f"Bearer {token}")) == (401, 200)
        said = subprocess.run(["docker", "logs", names[0]], capture_output=True, text=True, check=True).stderr
        assert " 127.0.0.7 GET /metadata 200 " in said
        assert "192.0.2.9" not in said
    finally:
        subprocess.run(["docker", "rm", "--force", *names], capture_output=True, check=False)


def find_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])
