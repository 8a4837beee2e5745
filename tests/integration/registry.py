"""A registry (https://github.com/opencontainers/distribution-spec) with one image that `docker save` wrote."""

import json
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from pathlib import Path

from tests.server import QuietHandler, running


@contextmanager
def serve(image: str, folder: Path) -> Iterator[tuple[str, str]]:
    saved = folder / "image.tar"
    subprocess.run(["docker", "save", "--output", str(saved), image], check=True)
    with tarfile.open(saved) as archive:
        archive.extractall(folder, filter="data")
    (described,) = json.loads((folder / "index.json").read_text())["manifests"]
    digest = described["digest"]

    class Registry(QuietHandler):
        def do_GET(self) -> None:
            kind, _, name = self.path.removeprefix("/v2/base/").partition("/")
            content = {"tag": digest}.get(name, name)
            file = folder / "blobs" / content.replace(":", "/")
            if self.path.rstrip("/") == "/v2":
                self.answer(200, b"{}")
            elif file.is_file():
                form = described["mediaType"] if kind == "manifests" else "application/octet-stream"
                self.answer(200, file.read_bytes(), form, {"Docker-Content-Digest": content})
            else:
                self.answer(404, b'{"errors": []}')

        def do_HEAD(self) -> None:
            self.do_GET()

    with running(ThreadingHTTPServer(("127.0.0.1", 0), Registry)) as server:
        reference = f"127.0.0.1:{server.server_port}/base:tag"
        try:
            yield reference, digest
        finally:
            subprocess.run(["docker", "image", "rm", reference], capture_output=True, check=False)
