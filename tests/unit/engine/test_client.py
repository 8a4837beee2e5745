import json
import threading

import pytest

from tests.server import Handler, reply, serve
from toolkit.base.errors import EngineError
from toolkit.engine import client

OLD = json.dumps({"Version": "20.10.0", "ApiVersion": "1.41"}).encode()


@pytest.mark.parametrize(
    ("handle", "message"),
    [
        (reply(500, b'{"message": "out of order"}'), "no container engine answers"),
        (reply(200, b"<html>a proxy"), "no container engine answers"),
        (reply(200, OLD), "is too old"),
    ],
)
def test_a_broken_engine_is_an_engine_error(monkeypatch: pytest.MonkeyPatch, handle: Handler, message: str) -> None:
    with serve(GET=handle) as address:
        monkeypatch.setenv("DOCKER_HOST", f"tcp://{address}")
        with pytest.raises(EngineError, match=message):
            client.connect()


def test_an_engine_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "ANSWER_SECONDS", 0.5)
    hanging = threading.Event()
    with serve(GET=lambda _: hanging.wait(10)) as address:
        monkeypatch.setenv("DOCKER_HOST", f"tcp://{address}")
        with pytest.raises(EngineError, match="no container engine answers"):
            client.connect()
        hanging.set()


@pytest.mark.parametrize(
    ("line", "old"),
    [
        ("github.com/docker/buildx v0.12.1 30feaa1", True),
        ("github.com/docker/buildx 0.9.1+azure", True),
        ("github.com/docker/buildx 0.13.1+ds1 0.13.1+ds1-3", False),
        ("github.com/docker/buildx v0.29.0-desktop.1 abc", False),
        ("github.com/docker/buildx v1.0.0", False),
        ("something of a distribution", False),
    ],
)
def test_a_buildx_without_progress_as_json_is_too_old(monkeypatch: pytest.MonkeyPatch, line: str, old: bool) -> None:
    monkeypatch.setattr(client, "find_buildx", lambda: line)
    if old:
        with pytest.raises(EngineError, match="is too old"):
            client.require_buildx()
    else:
        client.require_buildx()
