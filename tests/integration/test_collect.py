"""What Bazel downloads is collected by its own answer, and a build without the internet takes it from there."""

import hashlib
import io
import json
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.docker.test_wheel import edit
from tests.integration.workspace import Workspace
from tests.server import QuietHandler, serve
from toolkit.wheel import collection

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.timeout(900)]

CACHE = "toolkit-tests-collect"
ARCHIVE = 'http_archive(name = "{name}", sha256 = "{sha256}", strip_prefix = "{prefix}", urls = ["{url}"])\n'


def pack(name: str, **files: str) -> bytes:
    """Return an archive of files in a folder of that name."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for path, text in {"WORKSPACE": "", "BUILD": "", **files}.items():
            member = tarfile.TarInfo(f"{name}/{path.replace('__', '.')}")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    return buffer.getvalue()


def commit(folder: Path, **files: str) -> str:
    """Make a git repository, and return its commit."""
    folder.mkdir(parents=True)
    for name, text in {"WORKSPACE": "", "BUILD": "", **files}.items():
        (folder / name.replace("__", ".")).write_text(text)
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "--quiet"], ["add", "."], [*who, "commit", "--quiet", "--message", "one"]):
        subprocess.run(["git", "-C", folder, *words], check=True)
    return subprocess.run(
        ["git", "-C", folder, "rev-parse", "HEAD"], capture_output=True, text=True, check=True
    ).stdout.strip()


SERVED = pack("served", names__bzl='NAME = "served"\n')
UNUSED = pack("unused")


class Tree:
    """A tree that loads rules of one archive, whose name is in the rules of another, and that declares a third."""

    def __init__(self, workspace: Workspace, address: str) -> None:
        self.workspace, self.out = workspace, workspace.folder / "collected"
        mirror = workspace.folder / "mirrors" / "example+rules" / "repo"
        rules = 'load("@served//:names.bzl", "NAME")\ndef use():\n    print("rules of", NAME)\n'
        head = commit(mirror, use__bzl=rules)
        tar = subprocess.run(
            ["git", "-C", mirror, "archive", f"--prefix=rules-{head}/", head], capture_output=True, check=True
        ).stdout
        made = subprocess.run(["gzip", "-cn"], input=tar, capture_output=True, check=True).stdout
        self.rules = hashlib.sha256(made).hexdigest()
        self.served = hashlib.sha256(SERVED).hexdigest()
        archives = [
            ("rules", self.rules, f"rules-{head}", f"https://github.com/example/rules/archive/{head}.tar.gz"),
            ("served", self.served, "served", f"http://{address}/served.tar.gz"),
            ("unused", hashlib.sha256(UNUSED).hexdigest(), "unused", f"http://{address}/unused.tar.gz"),
        ]
        text = 'load("@bazel_tools//tools/build_defs/repo:http.bzl", "http_archive")\n\n'
        text += "".join(ARCHIVE.format(name=n, sha256=s, prefix=p, url=u) for n, s, p, u in archives)
        path = workspace.source / "WORKSPACE"
        path.write_text(path.read_text().replace("load(", f"{text}\nload(", 1))
        edit(workspace.source / "tensorflow/tools/pip_package/BUILD", "load(", 'load("@rules//:use.bzl", "use")\nload(')
        edit(workspace.source / "tensorflow/tools/pip_package/BUILD", "\ntf_wheel(", "\nuse()\n\ntf_wheel(")

    def collect(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        words = ["--source", str(self.workspace.source), "--bazel", "docker-image://toolkit/bazel:debian"]
        return self.workspace.toolkit("collect", *words, "--cache", CACHE, "--out", str(self.out), *arguments)

    def locate(self, sha256: str) -> Path:
        return collection.locate(self.out, sha256)


@pytest.fixture
def asked() -> list[str]:
    return []


@pytest.fixture
def tree(workspace: Workspace, asked: list[str]) -> Iterator[Tree]:
    def send(request: QuietHandler) -> None:
        asked.append(request.path)
        known = {"/served.tar.gz": SERVED, "/unused.tar.gz": UNUSED}
        request.answer(200, known[request.path]) if request.path in known else request.answer(404)

    with serve(GET=send) as address:
        yield Tree(workspace, address)


def test_archives_are_collected_and_a_build_takes_them_from_there(tree: Tree, asked: list[str]) -> None:
    done = tree.collect("--list")
    assert done.returncode == 0, done.stderr
    assert f"missing  {tree.rules}  github.com/example/rules/archive/" in done.stderr
    assert "0 of 1 archives" in done.stdout, "what it wants besides is not known before it has the first"

    done = tree.collect("--list", "--mirror", str(tree.workspace.folder / "mirrors"), "--json")
    assert done.returncode == 0, done.stderr
    origins = {row["sha256"]: row["origin"] for row in json.loads(done.stdout)["archives"]}
    assert origins == {tree.rules: "mirror of example/rules", tree.served: ""}

    done = tree.workspace.build("--downloads", str(tree.out))
    assert done.returncode == 4, done.stderr
    assert "1 archive is missing that Bazel would download" in done.stderr
    assert tree.served in done.stderr
    assert asked == [], "no download so far"

    done = tree.collect("--json")
    assert done.returncode == 0, done.stderr
    assert asked == ["/served.tar.gz"], "what no target needs is not downloaded, and what is there is kept"
    assert {row["sha256"]: bool(row["origin"]) for row in json.loads(done.stdout)["archives"]} == {
        tree.rules: True,
        tree.served: True,
    }
    assert tree.locate(tree.served).read_bytes() == SERVED

    done = tree.workspace.build("--downloads", str(tree.out))
    assert done.returncode == 0, done.stderr
    assert asked == ["/served.tar.gz"], "the build downloads nothing"

    content = bytearray(SERVED)
    content[40] ^= 1
    tree.locate(tree.served).write_bytes(content)
    done = tree.workspace.build("--downloads", str(tree.out), "--out", "other")
    assert done.returncode == 8, done.stderr
    assert "is damaged" in done.stderr
    done = tree.collect()
    assert done.returncode == 0, done.stderr
    assert tree.locate(tree.served).read_bytes() == SERVED, "a damaged archive is collected again"


def test_what_nobody_has_is_named_with_its_hash(tree: Tree) -> None:
    edit(tree.workspace.source / "WORKSPACE", "/served.tar.gz", "/gone.tar.gz")
    done = tree.collect("--mirror", str(tree.workspace.folder / "mirrors"))
    assert done.returncode == 4, done.stderr
    assert "1 archive is missing that Bazel would download" in done.stderr
    assert f"{tree.served}  127.0.0.1:" in done.stderr
    assert tree.locate(tree.rules).exists(), "what was found stays"
