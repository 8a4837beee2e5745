"""A Bazel HTTP cache with a password. Bazel only warns of a broken cache, so tests look at the requests here."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.integration.docker import stages

PASSWORD = "Bearer for-the-tests"  # noqa: S105


class CacheServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: str) -> None:
        super().__init__((address, 0), _Handler)
        self.kept: dict[str, bytes] = {}
        self.hits = 0
        self.refused = 0
        self.url = f"http://{address}:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: CacheServer

    def do_GET(self) -> None:
        if self._may():
            content = self.server.kept.get(self.path)
            self.server.hits += content is not None
            self._answer(404 if content is None else 200, content or b"")

    def do_PUT(self) -> None:
        content = self.rfile.read(int(self.headers["Content-Length"]))
        if self._may():
            self.server.kept[self.path] = content
            self._answer(201)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- the name is the base class's
        """Log nothing."""

    def _may(self) -> bool:
        if self.headers.get("Authorization") == PASSWORD:
            return True
        self.server.refused += 1
        self._answer(401)
        return False

    def _answer(self, code: int, content: bytes = b"") -> None:
        self.send_response(code)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


@contextmanager
def serve() -> Iterator[CacheServer]:
    with CacheServer(stages.find_gateway()) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()
