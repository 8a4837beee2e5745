"""A Bazel HTTP cache with a password. Bazel only warns of a broken cache, so tests look at the requests here."""

from contextlib import AbstractContextManager
from http.server import ThreadingHTTPServer

from tests.integration.docker import stages
from tests.server import QuietHandler, running

PASSWORD = "Bearer for-the-tests"  # noqa: S105


class CacheServer(ThreadingHTTPServer):
    def __init__(self, address: str) -> None:
        super().__init__((address, 0), _Handler)
        self.kept: dict[str, bytes] = {}
        self.hits = 0
        self.refused = 0
        self.url = f"http://{address}:{self.server_port}"


class _Handler(QuietHandler):
    server: CacheServer

    def do_GET(self) -> None:
        if self._may():
            content = self.server.kept.get(self.path)
            self.server.hits += content is not None
            self.answer(404 if content is None else 200, content or b"")

    def do_PUT(self) -> None:
        content = self.rfile.read(int(self.headers["Content-Length"]))
        if self._may():
            self.server.kept[self.path] = content
            self.answer(201)

    def _may(self) -> bool:
        if self.headers.get("Authorization") == PASSWORD:
            return True
        self.server.refused += 1
        self.answer(401)
        return False


def serve() -> AbstractContextManager[CacheServer]:
    return running(CacheServer(stages.find_gateway()))
