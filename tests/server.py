import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TypeVar

Server = TypeVar("Server", bound=ThreadingHTTPServer)


class QuietHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(
        self, status: int, body: bytes = b"", kind: str = "application/json", headers: Mapping[str, str] | None = None
    ) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


Handler = Callable[[QuietHandler], object]


@contextmanager
def running(server: Server) -> Iterator[Server]:
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def serve(host: str = "127.0.0.1", **handlers: Handler) -> Iterator[str]:
    methods = {f"do_{method}": handle for method, handle in handlers.items()}
    # With HTTP/1.0 a handler that sends nothing ends the connection.
    kind = type("Server", (QuietHandler,), {**methods, "protocol_version": "HTTP/1.0"})
    with running(ThreadingHTTPServer((host, 0), kind)) as server:
        yield f"{host}:{server.server_port}"


def reply(status: int, body: bytes = b"", kind: str = "application/json") -> Handler:
    return lambda request: request.answer(status, body, kind)
