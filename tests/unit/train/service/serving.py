"""Runs the prediction server in a thread, and talks to it."""

import asyncio
import io
import json
import secrets
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from http.client import HTTPConnection
from typing import Any, NamedTuple

import numpy as np
from jsonschema import Draft202012Validator
from numpy.typing import NDArray
from PIL import Image
from sklearn import datasets

from train.service.application import Service
from train.service.reading import Limits
from train.service.server import bind, make_server, make_service
from train.use import network


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    content: bytes

    @property
    def value(self) -> Any:
        return json.loads(self.content)

    @property
    def what(self) -> str:
        return str(self.value["error"]["what"])


class Client:
    def __init__(self, port: int, timeout: float = 60) -> None:
        self.port, self.timeout = port, timeout

    def ask(self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None) -> Answer:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=self.timeout)
        try:
            connection.request(method, path, body or None, dict(headers or {}))
            answer = connection.getresponse()
            return Answer(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())
        finally:
            connection.close()

    def send(self, files: Sequence[bytes], query: str = "", headers: Mapping[str, str] | None = None) -> Answer:
        kind, body = make_form(files)
        return self.ask("POST", f"/predictions{query}", body, {"Content-Type": kind, **(headers or {})})

    def send_json(self, value: object, query: str = "") -> Answer:
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        return self.ask("POST", f"/predictions{query}", body, {"Content-Type": "application/json"})


def make_form(files: Sequence[bytes]) -> tuple[str, bytes]:
    mark = secrets.token_hex(16)
    parts = [
        f'--{mark}\r\nContent-Disposition: form-data; name="image"; filename="{number}.png"\r\n\r\n'.encode()
        + content
        + b"\r\n"
        for number, content in enumerate(files)
    ]
    return f"multipart/form-data; boundary={mark}", b"".join(parts) + f"--{mark}--\r\n".encode()


def encode(image: NDArray[np.uint8], form: str = "PNG") -> bytes:
    file = io.BytesIO()
    Image.fromarray(image).save(file, form)
    return file.getvalue()


@contextmanager
def running(service: Service) -> Iterator[Client]:
    """Run a server while the block runs."""
    server, bound = make_server(service), bind("127.0.0.1", 0)
    port = bound.getsockname()[1]
    thread = threading.Thread(target=lambda: asyncio.run(server.serve([bound])), daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield Client(port)
    finally:
        server.should_exit = True
        thread.join(60)
        assert not thread.is_alive()


LIMITS = Limits(bytes=200_000, pixels=250_000, images=80, seconds=20)
PIXELS = np.rint(datasets.load_digits().images * 255 / 16).astype(np.uint8)
DIGITS = [encode(image) for image in PIXELS[:70]]


def make(trained: network.Network, *, token: str = "", size: int = 64, wait: float = 0.002, **limits: Any) -> Service:
    return make_service(trained, replace(LIMITS, **limits), token=token, size=size, wait=wait)


def list_guesses(answer: Answer) -> list[list[dict[str, Any]]]:
    assert answer.status == 200, answer.content
    return [each["guesses"] for each in answer.value["predictions"]]


def conforms(description: dict[str, Any], name: str, value: object) -> None:
    schema = {"$ref": f"#/components/schemas/{name}", "components": description["components"]}
    Draft202012Validator(schema).validate(value)
