"""Answers Bazel's downloads from loopback, by the configuration of Bazel's downloader.

Bazel takes an archive from a folder by its hash. What a rule downloads without one, such as a list of releases, it
always asks its address for. So such content is served here.
"""

import json
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

UNPINNED = "unpinned.json"
"""File of the folder of downloads: SHA-256 of the content by the address without scheme."""

PLACEHOLDER = b"This is not the archive that was asked for.\n"
"""Content of an address that is not known. Its hash is no archive's, so Bazel says which one it wanted."""


def read_unpinned(downloads: Path) -> dict[str, Path]:
    """Return the files with what has no hash, by address without scheme."""
    path = downloads / UNPINNED
    known: dict[str, str] = json.loads(path.read_text()) if path.exists() else {}
    store = downloads / "repository_cache/content_addressable/sha256"
    return {url: store / sha256 / "file" for url, sha256 in known.items()}


@dataclass
class Downloader:
    """A server on loopback while its ``with`` block runs; it answers every address."""

    known: Mapping[str, Path]  # file with the content by address without scheme
    address: str = ""  # of the server: host and port
    asked: list[str] = field(default_factory=list)  # addresses that were answered with the placeholder

    def compose_rules(self, *, all_: bool) -> str:
        """Return the rules that turn addresses into those of the server: all, or those that are known."""
        patterns = [".*"] if all_ else [re.escape(url) for url in self.known]
        return "".join(f"rewrite ({pattern}) http://{self.address}/$1\n" for pattern in patterns)

    @contextmanager
    def answering(self) -> Iterator[None]:
        downloader = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                url = self.path.removeprefix("/")
                if url not in downloader.known:
                    downloader.asked.append(url)
                content = downloader.known[url].read_bytes() if url in downloader.known else PLACEHOLDER
                self.send_response(200)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                pass

        with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
            thread = threading.Thread(target=server.serve_forever, daemon=True)
            thread.start()
            self.address = f"127.0.0.1:{server.server_port}"
            try:
                yield
            finally:
                server.shutdown()
                thread.join()
