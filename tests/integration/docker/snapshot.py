"""A server for one day of Debian's snapshot archive, which apt gets as ``Acquire::Snapshots::URI``."""

import re
import subprocess
import urllib.error
import urllib.request
from contextlib import AbstractContextManager
from http.server import ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

from tests.integration.docker import stages
from tests.server import QuietHandler, running

DAY = "20260901T000000Z"
_PATH = re.compile(r"/archive/([\w-]+)/([0-9TZ]+)(/[\w./%~+:-]+)")


class SnapshotServer(ThreadingHTTPServer):
    def __init__(self, address: str) -> None:
        super().__init__((address, 0), _Handler)
        self.mirrors = find_mirrors()
        self.asked: list[str] = []
        self.url = f"http://{address}:{self.server_port}/archive"

    def write_settings(self, folder: Path) -> Path:
        hosts = sorted({urlsplit(mirror).netloc for mirror in self.mirrors.values()})
        rules = {
            "Origin::Debian": "debian/@SNAPSHOTID@/",
            "Override::Label::Debian-Security": "debian-security/@SNAPSHOTID@/",
            **{f"Host::{host}": "@PATH@/@SNAPSHOTID@/" for host in hosts},
        }
        lines = [f'Acquire::Snapshots::URI::{rule} "{self.url}/{path}";\n' for rule, path in rules.items()]
        file = folder / "99snapshot"
        file.write_text("".join(lines))
        return file


class _Handler(QuietHandler):
    server: SnapshotServer

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        match = _PATH.fullmatch(self.path)
        if not match or match[2] != DAY or match[1] not in self.server.mirrors:
            self.answer(404)
            return
        try:
            with urllib.request.urlopen(self.server.mirrors[match[1]] + match[3], timeout=60) as answer:  # noqa: S310
                self.answer(200, answer.read())
        except urllib.error.HTTPError as error:
            self.answer(error.code)


def find_mirrors() -> dict[str, str]:
    argv = ["docker", "run", "--rm", stages.STANDIN, "sh", "-c", "cat /etc/apt/sources.list /etc/apt/sources.list.d/*"]
    said = subprocess.run(argv, capture_output=True, text=True, check=False).stdout
    mirrors = {uri.rstrip("/") for uri in re.findall(r"https?://\S+", said)}
    return {urlsplit(mirror).path.strip("/"): mirror for mirror in mirrors}


def serve() -> AbstractContextManager[SnapshotServer]:
    return running(SnapshotServer(stages.find_gateway()))
