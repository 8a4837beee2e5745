"""A registry with one image that `docker save` wrote: what a pull needs of
https://github.com/opencontainers/distribution-spec. Docker accepts plain HTTP from loopback addresses."""

import http.server
import json
import subprocess
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def serve(image: str, folder: Path) -> Iterator[tuple[str, str]]:
    saved = folder / "image.tar"
    subprocess.run(["docker", "save", "--output", str(saved), image], check=True)
    with tarfile.open(saved) as archive:
        archive.extractall(folder, filter="data")
    (described,) = json.loads((folder / "index.json").read_text())["manifests"]
    digest = described["digest"]

    class Registry(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            kind, _, name = self.path.removeprefix("/v2/base/").partition("/")
            content = {"tag": digest}.get(name, name)
            file = folder / "blobs" / content.replace(":", "/")
            if self.path.rstrip("/") == "/v2":
                self._send(200, b"{}", "application/json")
            elif file.is_file():
                form = described["mediaType"] if kind == "manifests" else "application/octet-stream"
                self._send(200, file.read_bytes(), form, content)
            else:
                self._send(404, b'{"errors": []}', "application/json")

        def do_HEAD(self) -> None:
            self.do_GET()

        def _send(self, status: int, body: bytes, kind: str, digest: str = "") -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            if digest:
                self.send_header("Docker-Content-Digest", digest)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Registry)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    reference = f"127.0.0.1:{server.server_port}/base:tag"
    try:
        yield reference, digest
    finally:
        server.shutdown()
        server.server_close()
        subprocess.run(["docker", "image", "rm", reference], capture_output=True, check=False)
