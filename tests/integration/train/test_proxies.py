"""Tests of ``serve`` behind the proxies of ``examples``."""

import json
import shlex
import subprocess
from collections.abc import Iterator

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
        proxies.call(container, "nginx -s stop" if proxy == "nginx" else "caddy stop")
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
