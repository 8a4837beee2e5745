"""A remote service is asked before Bazel starts, because Bazel would wait for minutes."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from wheelbuild import service


@contextmanager
def answering(word: bytes) -> Iterator[int]:
    """Yield the port of a server that reads a client's first words, says one of its own, and closes."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            client, _ = server.accept()
            with client:
                client.recv(1 << 10)
                client.sendall(word)

        threading.Thread(target=answer, daemon=True).start()
        yield server.getsockname()[1]


@pytest.mark.parametrize(("scheme", "word"), [("grpc", bytes(3) + b"\4" + bytes(5)), ("grpcs", b"\x15\3\3\0\2\2\x28")])
def test_server_that_answers_is_no_trouble_and_a_refusal_of_tls_is_an_answer(scheme: str, word: bytes) -> None:
    with answering(word) as port:
        assert service.find_trouble(f"{scheme}://127.0.0.1:{port}", seconds=5) == ""


@pytest.mark.parametrize("scheme", ["grpc", "grpcs"])
def test_server_that_takes_the_connection_and_says_nothing_is_trouble(scheme: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"{scheme}://127.0.0.1:{server.getsockname()[1]}"
        assert "timed out" in service.find_trouble(url, seconds=0.2)
    with answering(b"") as port:
        assert service.find_trouble(f"{scheme}://127.0.0.1:{port}", seconds=5)
