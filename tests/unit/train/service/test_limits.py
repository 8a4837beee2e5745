import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.unit.train.service import serving
from tests.unit.train.service.serving import DIGITS, LIMITS, Client, encode, list_guesses, make
from train.service import application
from train.service.application import Service
from train.service.batches import Batches
from train.service.reading import PixelBudget
from train.use import network


def test_limits_on_bytes_pixels_and_images(client: Client) -> None:
    big = client.send([bytes(LIMITS.bytes)])
    assert (big.status, big.what) == (413, "a request may have 200,000 bytes")
    declared = client.ask("POST", "/predictions", b"x", {"Content-Type": "application/json", "Content-Length": "9" * 9})
    assert declared.status == 413
    assert client.send([encode(np.zeros((500, 500), np.uint8))]).status == 200
    answer = client.send([encode(np.zeros((501, 500), np.uint8))])
    assert answer.status == 413
    assert "250,000" in answer.value["predictions"][0]["problem"]
    assert client.send([DIGITS[0]] * 81).status == 413
    assert client.send_json({"images": [""] * 81}).status == 413


def test_a_body_in_pieces_is_bounded_too(client: Client) -> None:
    with socket.create_connection(("127.0.0.1", client.port), 20) as opened:
        opened.sendall(
            b"POST /predictions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )
        opened.sendall(b"30D41\r\n" + bytes(200_001) + b"\r\n0\r\n\r\n")
        assert opened.recv(12) == b"HTTP/1.1 413"


def _slow(service: Service, event: threading.Event) -> Service:
    """Return a service that computes only after an event."""
    compute = service.batches.compute

    def wait(pixels: Any) -> Any:
        assert event.wait(30)
        return compute(pixels)

    batches = Batches(compute=wait, metrics=service.metrics, size=1, wait=0, limit=service.batches.limit)
    return replace(service, batches=batches)


def test_images_wait_until_their_pixels_fit() -> None:
    budget, held, most = PixelBudget(100), [0], [0]
    guard = threading.Lock()

    def decode(pixels: int) -> None:
        with budget.hold(pixels):
            with guard:
                held[0] += pixels
                most[0] = max(most[0], held[0])
            time.sleep(0.005)
            with guard:
                held[0] -= pixels

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(decode, [40, 50, 60, 100, 10] * 6))
        assert 50 < most[0] <= 100
        most[0] = 0
        list(pool.map(decode, [300, 20, 300, 20]))  # what never fits is decoded alone
        assert most[0] == 300


def test_a_full_queue_is_refused_with_a_time_to_try_again(trained: network.Network, expected: list[Any]) -> None:
    event = threading.Event()
    with serving.running(_slow(make(trained, images=3), event)) as client, ThreadPoolExecutor(8) as pool:
        first = pool.submit(client.send, DIGITS[:1], "?top=10")
        time.sleep(0.5)  # it is being computed, and three more fit in the queue
        waiting = pool.submit(client.send, DIGITS[1:4], "?top=10")
        while "toolkit_images_waiting 3" not in client.ask("GET", "/metrics").content.decode():
            time.sleep(0.02)
        refused = client.send(DIGITS[4:5])
        assert (refused.status, refused.headers["retry-after"]) == (503, "1")
        assert client.ask("GET", "/health").status == 200
        event.set()
        assert list_guesses(first.result()) + list_guesses(waiting.result()) == expected[:4]
        assert client.send(DIGITS[4:5]).status == 200


def test_an_answer_that_takes_too_long_is_given_up(trained: network.Network) -> None:
    event = threading.Event()
    with serving.running(_slow(make(trained, seconds=0.5), event)) as client:
        answer = client.send(DIGITS[:1])
        assert (answer.status, answer.headers["retry-after"]) == (504, "1")
        event.set()
        assert client.send(DIGITS[:1]).status == 200


def test_a_body_that_takes_too_long_is_given_up(trained: network.Network) -> None:
    with (
        serving.running(make(trained, seconds=0.5)) as client,
        socket.create_connection(("127.0.0.1", client.port), 20) as opened,
    ):
        opened.sendall(
            b"POST /predictions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: 10\r\n\r\n{"
        )
        assert opened.recv(12) == b"HTTP/1.1 408"


def test_a_connection_without_a_request_is_closed(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(application, "HEAD_SECONDS", 0.3)
    for sent in (b"", b"GET / HTTP/1.1\r\nHost: local"):
        with socket.create_connection(("127.0.0.1", client.port), 20) as opened:
            opened.sendall(sent)
            began = time.monotonic()
            assert opened.recv(1) == b""
            assert time.monotonic() - began < 5


def test_a_defect_of_the_network_is_an_error_of_its_requests_alone(
    trained: network.Network, expected: list[Any]
) -> None:
    service = make(trained)
    compute, fails = service.batches.compute, [True]

    def fail(pixels: Any) -> Any:
        if fails.pop() if fails else False:
            raise RuntimeError("planted")
        return compute(pixels)

    service.batches.compute = fail
    with serving.running(service) as client:
        assert client.send(DIGITS[:1]).status == 500
        assert list_guesses(client.send(DIGITS[:1], "?top=10")) == expected[:1]


@pytest.mark.parametrize("name", ["\ud800", "a\udfff", "\udcff.png"])
def test_a_name_that_is_no_text_is_refused_as_json(client: Client, name: str) -> None:
    answer = client.send_json({"images": [{"name": name, "content": ""}]})
    assert answer.status == 422
    assert "is no text" in answer.what
    assert client.send_json({"images": [{name: name, "content": "AA=="}], name: name}).status == 422
    assert client.send_json({name: name}).status == 422
