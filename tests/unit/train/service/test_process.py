"""Tests of the server as a process of its own."""

import base64
import json
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from http.client import HTTPException
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.tiers import weekly
from tests.unit.train import runs
from tests.unit.train.service.serving import DIGITS, PIXELS, Client, encode, list_guesses, make_form
from toolkit.base.errors import JobError
from toolkit.engine import Environment
from toolkit.engine.host import HostEngine
from toolkit.jobs import inference
from train.use import network, prediction

ROOT = Path(__file__).parents[4]
REQUESTS = 1000

pytestmark = pytest.mark.slow


@contextmanager
def started(run: Path, *options: str) -> Iterator[tuple[Client, subprocess.Popen[str]]]:
    """Start the program, wait until it answers, and end it if the block has not."""
    argv = [sys.executable, "-P", "-m", "train", "serve", str(run), "--port", "0", *options]
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(argv, env=variables, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr
        said = ""
        try:
            for line in process.stderr:
                said += line
                if found := re.search(r"http://127\.0\.0\.1:(\d+)", line):
                    threading.Thread(target=process.stderr.read, daemon=True).start()  # a line for each request
                    yield Client(int(found[1])), process
                    break
            else:
                pytest.fail(said)
        finally:
            process.kill()


def make_head(kind: str, length: int) -> bytes:
    lines = ("POST /predictions HTTP/1.1", "Host: localhost", f"Content-Type: {kind}", f"Content-Length: {length}", "")
    return "\r\n".join([*lines, ""]).encode()


def test_a_stopped_server_answers_what_it_has_taken_and_takes_nothing_more(trained: network.Network) -> None:
    with started(trained.folder) as (client, process):
        kind, body = make_form(DIGITS[:2])
        head = make_head(kind, len(body))
        with socket.create_connection(("127.0.0.1", client.port), 30) as opened:
            opened.sendall(head + body[:-20])
            assert client.ask("GET", "/health").status == 200
            process.send_signal(signal.SIGTERM)
            for _ in range(100):
                try:
                    client.ask("GET", "/health")
                except ConnectionError:
                    break
                time.sleep(0.1)  # uvicorn looks ten times a second
            else:
                pytest.fail("new connections are taken")
            opened.sendall(body[-20:])
            answer = b""
            while chunk := opened.recv(65536):
                answer += chunk
        assert answer.startswith(b"HTTP/1.1 200")
        assert answer.count(b'"guesses"') == 2
        assert process.wait(30) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_idle_server_ends_at_once(trained: network.Network, number: signal.Signals) -> None:
    with started(trained.folder) as (client, process):
        assert client.send(DIGITS[:1]).status == 200
        process.send_signal(number)
        assert process.wait(15) == 0


def test_the_host_engine_serves_until_it_is_asked_to_stop(
    trained: network.Network, tmp_path: Path, interruptible: None
) -> None:
    python = tmp_path / "environment" / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    folder = tmp_path / "environment"
    environment = Environment(kind="environment", digest="", reference=str(folder), folder=folder, reused=True)
    engine = HostEngine(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    own = engine.plan_network()
    job = inference.plan_serving(trained.folder, inference.Serving(host="127.0.0.1", port=port), own)
    statuses = []

    def use() -> None:
        for _ in range(600):
            with suppress(OSError):
                statuses.append(Client(port).send(DIGITS[:1]).status)
                break
            time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=use)
    thread.start()
    inference.serve(engine, environment, job)
    thread.join()
    assert statuses == [200]
    with pytest.raises(OSError, match="refused"):
        Client(port).ask("GET", "/health")
    taken = inference.plan_serving(trained.folder, inference.Serving(host="127.0.0.1", port=port), own)
    with socket.create_server(("127.0.0.1", port)), pytest.raises(JobError) as failed:
        inference.serve(engine, environment, taken)
    assert failed.value.exit_code == 4


@pytest.mark.parametrize("kernels", ["native", weekly("stock")])
def test_a_thousand_requests_are_answered_as_predict_does(kernels: str, tmp_path: Path) -> None:
    """Whatever the requests, their sizes, and the batches that they come into."""
    run = runs.make(tmp_path / "runs", "--epochs", "3", "--kernels", kernels)
    pixels = PIXELS
    files = [encode(image) for image in pixels]
    places = [tmp_path / f"{number:04}.png" for number in range(len(files))]
    for place, content in zip(places, files, strict=True):
        place.write_bytes(content)
    loaded = network.load(run, exact=True)
    assert loaded.form.native is (kernels == "native"), loaded.note
    expected = [[guess.__dict__ for guess in each.guesses] for each in prediction.predict(loaded, places, 10)]
    alone = [[guess.__dict__ for guess in each.guesses] for each in prediction.predict(loaded, places[:1], 10)]
    assert alone == expected[:1]
    numbers = np.random.default_rng(0)
    groups = [numbers.integers(0, len(files), numbers.choice([1, 1, 1, 2, 3, 7, 20])) for _ in range(REQUESTS)]
    with started(run, "--batch", "48", "--queue", "4000") as (client, process):

        def send(group: Any) -> list[Any]:
            return list_guesses(client.send([files[index] for index in group], "?top=10"))

        with ThreadPoolExecutor(24) as pool:
            for group, found in zip(groups, pool.map(send, groups), strict=True):
                assert found == [expected[index] for index in group]
        said = client.ask("GET", "/metrics").content.decode()
        counts = [int(count) for count in re.findall(r"toolkit_batch_images_bucket\{.*\} (\d+)", said)]
        sizes = np.diff([0, *counts])
        assert (sizes > 0).sum() >= 4, f"batches of many sizes: {sizes}"
        process.terminate()
        assert process.wait(30) == 0


def make_bomb(side: int) -> bytes:
    """Return a small PNG file of a black square, of so many pixels that it would fill the memory."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return len(content).to_bytes(4, "big") + kind + content + zlib.crc32(kind + content).to_bytes(4, "big")

    size = side.to_bytes(4, "big")
    lines = zlib.compress(bytes(10_000_000), 9)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", size + size + b"\x08\0\0\0\0")
        + chunk(b"IDAT", lines)
        + chunk(b"IEND", b"")
    )


def send_raw(client: Client, content: bytes, *, answer: bool = True) -> int:
    """Send bytes, and return the status of the answer; 0 if there is none, or nobody waits for it."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", client.port), 20) as opened:
        opened.sendall(content)
        return int(opened.recv(12)[9:] or 0) if answer else 0
    return 0


def plague(client: Client, number: int) -> bool:
    """Send one bad request, and return whether it was answered as such a request may be."""
    good = DIGITS[number % len(DIGITS)]
    body = json.dumps({"images": [base64.b64encode(good).decode()]}).encode()
    numbers = np.random.default_rng(number)
    damaged = bytearray(good)
    damaged[int(numbers.integers(len(good)))] ^= 1 << int(numbers.integers(8))
    part, cut = int(numbers.integers(1, len(good) - 1)), int(numbers.integers(1, len(body) - 1))
    noise = secrets.token_bytes(300)
    kinds: list[tuple[Callable[[], int], set[int]]] = [
        (lambda: client.send([good[:part]]).status, {422, 200}),  # the end of a PNG file can be missing
        (lambda: client.send([bytes(damaged)]).status, {422, 200, 413}),
        (lambda: client.send([BOMB, BIG_BOMB]).status, {413}),
        (lambda: client.send([noise * 7]).status, {422}),
        (lambda: client.ask("POST", "/predictions", body, {"Content-Type": "image/png"}).status, {415}),
        (lambda: client.ask("GET", "/health", headers={"X-Long": "x" * 999_999}).status, {400}),
        (lambda: client.send_json(body[:cut]).status, {400}),
        (lambda: client.send_json({"images": [f"{secrets.token_urlsafe(99)}%"]}).status, {422}),
        (lambda: client.send_json(b"[" * 50_000).status, {400}),
        (lambda: client.send_json(bytes(3 << 20)).status, {413}),
        (lambda: send_raw(client, make_head("application/json", 99_999) + b"x" * 1000, answer=False), {0}),
        (lambda: send_raw(client, noise + b"\r\n\r\n"), {0, 400}),
    ]
    send, allowed = kinds[number % len(kinds)]
    try:
        return send() in allowed
    except (HTTPException, OSError):
        return number % len(kinds) in {5, 9}  # the connection is closed before all of it was sent


BOMB, BIG_BOMB = make_bomb(40_000), make_bomb(2_000_000_000)
GROWTH = 64 << 20
"""Bytes that the memory of the server may grow by: less than one of the bombs, or the bodies of a few requests."""


def read_memory(client: Client) -> int:
    said = client.ask("GET", "/metrics").content.decode()
    return int(re.findall(r"^process_resident_memory_bytes (\d+)", said, re.MULTILINE)[0])


def test_a_thousand_bad_requests_leave_the_server_as_it_was(trained: network.Network) -> None:
    with started(trained.folder, "--max-mib", "2", "--timeout", "5") as (client, process):
        expected = list_guesses(client.send(DIGITS, "?top=10"))
        with ThreadPoolExecutor(8) as pool:
            assert all(pool.map(partial(plague, client), range(120)))
            before = read_memory(client)
            idle = [socket.create_connection(("127.0.0.1", client.port)) for _ in range(100)]
            for number, each in enumerate(idle):
                each.sendall(b"POST /predictions HTTP/1.1\r\nHost: localhost\r\n"[: number % 40])
            found = list(pool.map(partial(plague, client), range(REQUESTS)))
            assert [number for number, each in enumerate(found) if not each] == []
            for each in idle:
                each.close()
        assert list_guesses(client.send(DIGITS, "?top=10")) == expected
        grown = read_memory(client) - before
        assert grown < GROWTH, f"{grown / 2**20:.0f} MiB"
        process.terminate()
        assert process.wait(30) == 0
