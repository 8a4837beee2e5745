import hashlib
import json
import re
import urllib.request
from pathlib import Path

from wheelbuild import downloader

LIST = "golang.org/dl/?mode=json&include=all"
RELEASES = b'[{"version": "go1.22.5"}]'


def keep(folder: Path, url: str, content: bytes) -> None:
    sha256 = hashlib.sha256(content).hexdigest()
    path = folder / "repository_cache/content_addressable/sha256" / sha256 / "file"
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    (folder / downloader.UNPINNED).write_text(json.dumps({url: sha256}))


def ask(address: str, url: str) -> bytes:
    with urllib.request.urlopen(f"http://{address}/{url}") as answer:
        return bytes(answer.read())


def test_what_was_collected_is_served_and_all_else_gets_the_placeholder(tmp_path: Path) -> None:
    keep(tmp_path, LIST, RELEASES)
    server = downloader.Downloader(downloader.read_unpinned(tmp_path))
    with server.answering():
        assert server.compose_rules(all_=True) == f"rewrite (.*) http://{server.address}/$1\n"
        assert ask(server.address, LIST) == RELEASES
        for url in ("example.com/a.tar.gz", "github.com/a/b/archive/c.zip?x=1"):
            assert ask(server.address, url) == downloader.PLACEHOLDER
    assert server.asked == ["example.com/a.tar.gz", "github.com/a/b/archive/c.zip?x=1"]


def test_a_build_asks_the_server_for_what_it_knows_alone(tmp_path: Path) -> None:
    keep(tmp_path, LIST, RELEASES)
    server = downloader.Downloader(downloader.read_unpinned(tmp_path), address="127.0.0.1:1")
    (rule,) = server.compose_rules(all_=False).splitlines()
    _, pattern, target = rule.split(" ")
    assert re.fullmatch(pattern, LIST)
    assert not re.fullmatch(pattern, LIST.replace(".", "x"))
    assert target == "http://127.0.0.1:1/$1"
    assert downloader.Downloader(downloader.read_unpinned(tmp_path / "none")).compose_rules(all_=False) == ""
