import http.server
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Handler = Callable[[http.server.BaseHTTPRequestHandler], object]


@contextmanager
def serve(**handlers: Handler) -> Iterator[str]:
    """Serve until the block ends, with one handler for each HTTP method; yield host and port."""
    methods = {f"do_{method}": handle for method, handle in handlers.items()}
    kind = type("Server", (http.server.BaseHTTPRequestHandler,), {**methods, "log_message": lambda *_: None})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), kind)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def reply(status: int, body: bytes = b"", kind: str = "application/json") -> Handler:
    def handle(request: http.server.BaseHTTPRequestHandler) -> None:
        request.send_response(status)
        request.send_header("Content-Type", kind)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)

    return handle
