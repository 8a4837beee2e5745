"""The connection to a remote service is tested before Bazel starts, because Bazel would wait for minutes."""

import socket
import time

import pytest
from wheelbuild import service


def test_somebody_who_listens_is_no_trouble() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert service.find_trouble(f"grpc://127.0.0.1:{server.getsockname()[1]}") == ""


def test_nobody_is_named_with_the_reason() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"grpcs://127.0.0.1:{server.getsockname()[1]}"
    assert service.find_trouble(url).startswith(f"{url}: ")
    assert "refused" in service.find_trouble(url)


def test_name_that_nobody_has_is_named() -> None:
    assert "executor.invalid" in service.find_trouble("grpc://executor.invalid")


def test_silence_is_not_waited_for() -> None:
    # A full queue of connections drops packets without an answer, as a firewall does.
    with socket.create_server(("127.0.0.1", 0), backlog=0) as server:
        address = server.getsockname()
        waiting = [socket.socket() for _ in range(4)]
        for client in waiting:
            client.setblocking(False)
            client.connect_ex(address)
        began = time.monotonic()
        assert "timed out" in service.find_trouble(f"grpc://127.0.0.1:{address[1]}", seconds=0.5)
        assert time.monotonic() - began < 5
        for client in waiting:
            client.close()


@pytest.mark.parametrize("url", ["", "unix:/run/x.sock", "executor:8980"])
def test_what_is_no_such_url_is_left_to_bazel(url: str) -> None:
    assert service.find_trouble(url) == ""


def test_impossible_port_is_trouble() -> None:
    assert service.find_trouble("grpc://127.0.0.1:99999")
