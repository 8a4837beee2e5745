import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.makers.publication import PLAN
from tests.server import QuietHandler, serve
from toolkit.base.console import Console
from toolkit.base.errors import IntegrityError
from toolkit.wheel import collection
from toolkit.wheel.collection import Archive

CONTENT = bytes(range(256)) * 4000
SHA256 = hashlib.sha256(CONTENT).hexdigest()
QUIET = Console(verbosity=-1)


class Server:
    """Sends the content, or the rest of it from a place on; breaks off after some bytes if asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.breaks: list[int] = []
        self.content = CONTENT

    def send(self, request: QuietHandler) -> None:
        start = request.headers.get("Range", "bytes=0-").removeprefix("bytes=").partition("-")[0]
        self.asked.append(start)
        if int(start) >= len(self.content):
            request.answer(416)
            return
        rest = self.content[int(start) :]
        request.send_response(206 if int(start) else 200)
        request.send_header("Content-Length", str(len(rest)))
        request.end_headers()
        request.wfile.write(rest[: self.breaks.pop(0)] if self.breaks else rest)


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def archive(server: Server) -> Iterator[Archive]:
    def send(request: QuietHandler) -> None:
        server.send(request)

    with serve(GET=send) as address:
        yield Archive(sha256=SHA256, urls=("127.0.0.1:1/none.tar.gz", f"{address}/a.tar.gz"))


def obtain(archive: Archive, folder: Path) -> Archive:
    path = collection.locate(folder, archive.sha256)
    return collection._obtain(archive, path, collection.download_by_hash(), QUIET)


def test_an_archive_is_downloaded_by_its_hash(tmp_path: Path, archive: Archive, server: Server) -> None:
    got = obtain(archive, tmp_path)
    assert (got.origin, got.bytes) == (f"http://{archive.urls[1]}", len(CONTENT))
    assert collection.locate(tmp_path, SHA256).read_bytes() == CONTENT
    assert obtain(archive, tmp_path).origin == "the folder"
    assert server.asked == ["0"]


def test_an_interrupted_download_goes_on_where_it_was(tmp_path: Path, archive: Archive, server: Server) -> None:
    server.breaks = [1000]
    assert obtain(archive, tmp_path).origin == "", "the server broke off"
    assert not collection.locate(tmp_path, SHA256).exists()
    assert obtain(archive, tmp_path).origin
    assert server.asked == ["0", "1000"]
    assert collection.locate(tmp_path, SHA256).read_bytes() == CONTENT


def test_other_bytes_than_wanted_are_not_taken(tmp_path: Path, archive: Archive, server: Server) -> None:
    server.content = CONTENT[:-1] + b"?"
    assert obtain(archive, tmp_path).origin == ""
    assert list(tmp_path.rglob("*/*")) == [] or not list(tmp_path.rglob("file"))


def fill(folder: Path) -> Path:
    path = collection.locate(folder, SHA256)
    path.parent.mkdir(parents=True)
    path.write_bytes(CONTENT)
    rows = [{"sha256": SHA256, "urls": ["a/b.tar.gz"], "origin": "x", "bytes": len(CONTENT)}]
    (folder / collection.FILE).write_text(json.dumps({"schema": 1, "plan": "p", "archives": rows}))
    return path


def test_a_flipped_byte_is_found(tmp_path: Path) -> None:
    path = fill(tmp_path)
    collection.require_whole(tmp_path)
    path.write_bytes(CONTENT[:-1] + b"?")
    with pytest.raises(IntegrityError, match="is damaged"):
        collection.require_whole(tmp_path)


def test_a_command_keeps_what_another_one_has_collected_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, others, gone = fill(tmp_path), "example.com/others", "example.com/gone"

    def fetch(archive: Archive, partial: Path) -> str:
        (tmp_path / collection.UNPINNED).write_text(json.dumps({others: SHA256, gone: "0" * 64}))
        partial.write_bytes(b"other")
        return f"https://{archive.urls[0]}"

    asked = [Archive(sha256="", urls=("example.com/own",), pinned=False)]
    monkeypatch.setattr(collection, "_ask", lambda *_args, **_options: asked)
    monkeypatch.setattr(collection, "require_buildx", lambda: None)
    (got,) = collection.collect(PLAN, tmp_path, fetch, state=tmp_path, console=QUIET)
    listed = json.loads((tmp_path / collection.UNPINNED).read_text())
    assert listed == {"example.com/own": got.sha256, others: SHA256}
    assert path.read_bytes() == CONTENT


@pytest.mark.parametrize("damage", ["missing", "other"])
def test_a_list_without_a_pinned_hash_is_fetched_again_where_its_bytes_are_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    url = "example.com/releases"

    def fetch(archive: Archive, partial: Path) -> str:
        partial.write_bytes(CONTENT)
        return f"https://{archive.urls[0]}"

    asked = [Archive(sha256="", urls=(url,), pinned=False)]
    monkeypatch.setattr(collection, "_ask", lambda *_args, **_options: asked)
    monkeypatch.setattr(collection, "require_buildx", lambda: None)
    for _ in range(2):
        (got,) = collection.collect(PLAN, tmp_path, fetch, state=tmp_path, console=QUIET)
        assert (got.sha256, got.pinned) == (SHA256, False)
        assert json.loads((tmp_path / collection.UNPINNED).read_text()) == {url: SHA256}
        path = collection.locate(tmp_path, SHA256)
        assert path.read_bytes() == CONTENT
        path.unlink()
        if damage == "other":
            path.write_bytes(b"other")
