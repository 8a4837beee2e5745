"""A small registry in memory, which a test can make lie."""

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.server import QuietHandler, running

NAME = "team/tensorflow"
Fault = Callable[[QuietHandler], bool]
"""Returns whether it has answered."""


@dataclass
class Registry:
    address: str = ""
    blobs: dict[str, bytes] = field(default_factory=dict)
    tags: dict[str, bytes] = field(default_factory=dict)
    asked: list[tuple[str, str, str | None, str | None]] = field(default_factory=list)
    """Method, path, range and authorization of each request."""

    fault: Fault = lambda _request: False

    def copy(self, other: "Registry") -> None:
        self.blobs, self.tags = dict(other.blobs), dict(other.tags)
        self.asked, self.fault = [], lambda _request: False

    @property
    def reference(self) -> str:
        return f"http://{self.address}/{NAME}"

    @property
    def manifest(self) -> Any:
        (content,) = self.tags.values()
        return json.loads(content)

    def change(self, edit: Callable[[Any], object]) -> None:
        ((tag, content),) = self.tags.items()
        value = json.loads(content)
        edit(value)
        self.tags[tag] = json.dumps(value).encode()

    def find(self, title: str) -> tuple[int, str]:
        """Return place and digest of the file whose name ends so."""
        layers = self.manifest["layers"]
        names = [layer["annotations"]["org.opencontainers.image.title"] for layer in layers]
        (place,) = (index for index, name in enumerate(names) if name.endswith(title))
        return place, layers[place]["digest"]

    def put(self, title: str, content: bytes) -> None:
        """Replace a file, and its digest in the manifest."""
        place, _ = self.find(title)
        self.blobs[digest(content)] = content
        self.change(lambda value: value["layers"][place].update(digest=digest(content), size=len(content)))

    def answer(self, request: QuietHandler) -> None:
        sent = request.headers
        self.asked.append((request.command, request.path, sent.get("Range"), sent.get("Authorization")))
        content = request.rfile.read(int(sent.get("Content-Length", 0)))
        if self.fault(request):
            return
        parts = urlsplit(request.path)
        kind, _, name = parts.path.removeprefix(f"/v2/{NAME}/").partition("/")
        match request.command, kind:
            case "POST", "blobs":
                request.answer(202, headers={"Location": f"/v2/{NAME}/blobs/uploads/1?state=x"})
            case "PUT", "blobs":
                (value,) = parse_qs(parts.query)["digest"]
                self.blobs[value] = content
                request.answer(201 if digest(content) == value else 400)
            case "PUT", "manifests":
                self.tags[name] = content
                request.answer(201)
            case _, "manifests" if found := self._find_manifest(name, sent.get("Accept", "")):
                request.answer(200, found, headers={"Docker-Content-Digest": digest(found), "X-Test": "1"})
            case _, "blobs" if name in self.blobs:
                send(request, self.blobs[name])
            case _:
                request.answer(404, b'{"errors": [{"code": "MANIFEST_UNKNOWN", "message": "unknown"}]}')

    def _find_manifest(self, name: str, accepted: str) -> bytes | None:
        """Return a manifest; None if there is none of a form that is accepted, as distribution/distribution does."""
        found = ({digest(each): each for each in self.tags.values()} | self.tags).get(name)
        try:
            form = json.loads(found or b"{}").get("mediaType", "")
        except (ValueError, AttributeError):
            form = ""
        return found if form in accepted else None


def send(request: QuietHandler, content: bytes, *, upto: int | None = None) -> None:
    """Answer with a file or with the rest of it; ``upto``: cut the connection at this byte of the file."""
    start = int(request.headers.get("Range", "bytes=0-").removeprefix("bytes=").removesuffix("-"))
    request.send_response(206 if start else 200)
    request.send_header("Content-Length", str(len(content) - start))
    if start:
        request.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
    request.end_headers()
    if request.command != "HEAD":
        request.wfile.write(content[start:upto])
    if upto is not None:
        request.close_connection = True


def digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


@contextmanager
def serve() -> Iterator[Registry]:
    found = Registry()
    methods = {f"do_{name}": _bind(found.answer) for name in ("GET", "HEAD", "POST", "PUT")}
    # Otherwise each answer would wait for the client to confirm its headers.
    handler = type("Handler", (QuietHandler,), {**methods, "disable_nagle_algorithm": True})
    with running(ThreadingHTTPServer(("127.0.0.1", 0), handler)) as server:
        found.address = f"127.0.0.1:{server.server_port}"
        yield found


def _bind(answer: Callable[[QuietHandler], None]) -> Callable[[QuietHandler], None]:
    return lambda request: answer(request)  # noqa: PLW0108 - a bound method would not get the request
