"""What Bazel downloads is collected by its own answer, and a build without the internet takes it from there."""

import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.integration.docker import https
from tests.integration.small_engine import ALONE, SmallEngine, start
from tests.integration.workspace import Workspace
from tests.makers.mini_tensorflow import edit
from tests.server import QuietHandler, running, serve
from toolkit.wheel import collection

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.timeout(900)]

CACHE = "toolkit-tests-collect"
LOCK = "requirements_lock_3_11.txt"
SOURCE = ("--bazel", "docker-image://toolkit/bazel:debian", "--source")
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


RULES = pack("rules", use__bzl='load("@served//:names.bzl", "NAME")\ndef use():\n    print("rules of", NAME)\n')
SERVED = pack("served", names__bzl='NAME = "served"\n')
UNUSED = pack("unused")
LISTED = pack("listed", names__bzl='LISTED = "listed"\n')
LISTED_RULE = """
def _impl(ctx):
    ctx.download("https://{secure}/releases?mode=json", output = "releases.json")
    release = json.decode(ctx.read("releases.json"))
    ctx.download_and_extract(release["url"], sha256 = release["sha256"], stripPrefix = "listed")

listed = repository_rule(implementation = _impl)
"""
"""As rules_go has it: a list without a hash, which names the archive and its hash."""


def hash_bytes(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


class Tree:
    """A tree that loads rules of one archive, whose name is in the rules of another, and that declares a third.

    It also reads a list that has no hash, and has pip make a wheel.
    """

    def __init__(self, workspace: Workspace, address: str, secure: str) -> None:
        self.workspace, self.out = workspace, workspace.folder / "collected"
        self.rules, self.served, self.listed = hash_bytes(RULES), hash_bytes(SERVED), hash_bytes(LISTED)
        archives = [
            ("rules", self.rules, "rules", f"http://{address}/rules.tar.gz"),
            ("served", self.served, "served", f"http://{address}/served.tar.gz"),
            ("unused", hash_bytes(UNUSED), "unused", f"http://{address}/unused.tar.gz"),
        ]
        text = 'load("@bazel_tools//tools/build_defs/repo:http.bzl", "http_archive")\n'
        text += 'load("//third_party/py:listed.bzl", "listed")\n\nlisted(name = "listed")\n\n'
        text += "".join(ARCHIVE.format(name=n, sha256=s, prefix=p, url=u) for n, s, p, u in archives)
        (workspace.source / "third_party/py/listed.bzl").write_text(LISTED_RULE.replace("{secure}", secure))
        path = workspace.source / "WORKSPACE"
        path.write_text(path.read_text().replace("load(", f"{text}\nload(", 1))
        package = workspace.source / "tensorflow/tools/pip_package/BUILD"
        loads = ['load("@rules//:use.bzl", "use")', 'load("@listed//:names.bzl", "LISTED")']
        loads += ['load("@pypi_six//:names.bzl", "WHEELS")', "load("]
        edit(package, "load(", "\n".join(loads))
        edit(package, "\ntf_wheel(", '\nuse()\n\nprint("uses", LISTED, WHEELS)\n\ntf_wheel(')

    def collect(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        words = [*SOURCE, str(self.workspace.source), "--cache", CACHE, "--collect", str(self.out)]
        return self.workspace.toolkit("build-wheel", *words, *arguments)

    def locate(self, sha256: str) -> Path:
        return collection.locate(self.out, sha256)


@pytest.fixture
def asked() -> list[str]:
    return []


@pytest.fixture
def tree(bazel: None, workspace: Workspace, asked: list[str], tmp_path: Path) -> Iterator[Tree]:
    def send(request: QuietHandler) -> None:
        asked.append(request.path)
        known = {"/rules.tar.gz": RULES, "/served.tar.gz": SERVED, "/unused.tar.gz": UNUSED, "/listed.tar.gz": LISTED}
        request.answer(200, known[request.path]) if request.path in known else request.answer(404)

    with serve(GET=send) as address:
        release = json.dumps({"url": f"http://{address}/listed.tar.gz", "sha256": hash_bytes(LISTED)}).encode()

        class Releases(QuietHandler):
            def do_GET(self) -> None:
                asked.append(self.path)
                self.answer(200, release)

        # Bazel downloads nothing without a hash, unless it is by https.
        with running(https.secure(ThreadingHTTPServer(("127.0.0.1", 0), Releases), tmp_path)) as server:
            bundle = tmp_path / "bundle.pem"
            known = Path(os.environ.get("SSL_CERT_FILE", "/etc/ssl/certs/ca-certificates.crt")).read_text()
            bundle.write_text(known + (tmp_path / "authority.pem").read_text())
            workspace.variables["TOOLKIT_CA_BUNDLE"] = str(bundle)
            yield Tree(workspace, address, f"127.0.0.1:{server.server_port}")


@pytest.mark.weekly
def test_archives_are_collected_and_a_build_takes_them_from_there(tree: Tree, asked: list[str]) -> None:
    done = tree.collect("--archives-only", "--json")
    assert done.returncode == 0, done.stderr
    wanted = ["/listed.tar.gz", "/releases?mode=json", "/rules.tar.gz", "/served.tar.gz"]
    assert sorted(asked) == wanted, "what no target needs is not downloaded, and what is there is kept"
    rows = {row["sha256"]: row for row in json.loads(done.stdout)["archives"]}
    assert all(row["origin"] for row in rows.values())
    assert {sha256 for sha256, row in rows.items() if row["pinned"]} == {tree.rules, tree.served, tree.listed}
    assert tree.locate(tree.served).read_bytes() == SERVED

    done = tree.workspace.build("--downloads", str(tree.out))
    assert done.returncode == 0, done.stderr
    assert sorted(asked) == wanted, "the build downloads nothing"

    content = bytearray(SERVED)
    content[40] ^= 1
    tree.locate(tree.served).write_bytes(content)
    done = tree.workspace.build("--downloads", str(tree.out), "--out", "other")
    assert done.returncode == 8, done.stderr
    assert "is damaged" in done.stderr
    done = tree.collect("--archives-only")
    assert done.returncode == 0, done.stderr
    assert tree.locate(tree.served).read_bytes() == SERVED, "a damaged archive is collected again"


def test_what_nobody_has_is_named_with_its_hash(tree: Tree) -> None:
    edit(tree.workspace.source / "WORKSPACE", "/served.tar.gz", "/gone.tar.gz")
    done = tree.collect("--archives-only")
    assert done.returncode == 4, done.stderr
    assert "1 archive is missing that Bazel would download" in done.stderr
    assert f"{tree.served}  127.0.0.1:" in done.stderr
    assert tree.locate(tree.rules).exists(), "what was found stays"
    done = tree.workspace.build("--downloads", str(tree.out))
    assert done.returncode == 4, done.stderr
    assert tree.served in done.stderr


class Alone:
    """A machine without a network: an engine that has no image, and commands with loopback alone."""

    def __init__(self, tree: Tree, engine: SmallEngine) -> None:
        self.tree, self.engine = tree, engine

    def toolkit(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        workspace = self.tree.workspace
        argv = [*ALONE, sys.executable, "-m", "toolkit", *arguments, "--downloads", str(self.tree.out)]
        variables = workspace.variables | self.engine.variables | {"PYTHONPATH": str(workspace.root)}
        variables["TOOLKIT_STATE"] = str(workspace.folder / "alone")
        return subprocess.run(argv, cwd=workspace.folder, env=variables, capture_output=True, text=True, check=False)

    def build(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        return self.toolkit("build-wheel", "--source", str(self.tree.workspace.source), "--json", *arguments)

    def docker(self, *arguments: str) -> str:
        variables = os.environ | self.engine.variables
        done = subprocess.run(["docker", *arguments], env=variables, capture_output=True, text=True, check=False)
        return done.stdout.strip()


@pytest.mark.weekly
def test_a_machine_without_a_network_makes_wheel_and_image_from_the_folder(tree: Tree, clone: Path) -> None:
    tree.workspace.root = clone
    # The real set has gigabytes of CUDA. Its way is the same.
    (clone / "docker/requirements/cuda-12.6.1.txt").write_text((tree.workspace.source / LOCK).read_text())
    done = tree.collect()
    assert done.returncode == 0, done.stderr
    assert "4 images and 1 Python packages" in done.stderr
    listed = subprocess.run(
        ["docker", "images", "--quiet", "toolkit/offline"], capture_output=True, text=True, check=True
    )
    assert listed.stdout == "", "what was saved is not kept twice"

    with tempfile.TemporaryDirectory() as folder, start(Path(folder), gib=10, alone=True) as engine:
        alone = Alone(tree, engine)
        done = alone.build("--cuda", "12.5.1", "--cudnn", "9.3.0")
        assert done.returncode == 2, done.stderr
        assert "was collected for another build" in done.stderr
        assert "spec cuda: locked 12.6.1, now 12.5.1" in done.stderr
        done = alone.build()
        assert done.returncode == 0, done.stderr
        wheel = json.loads(done.stdout)
        done = alone.toolkit(
            "build-image", "--wheel", wheel["folder"], "--cuda", "12.6.1", "--cudnn", "9.5.0", "--json"
        )
        assert done.returncode == 0, done.stderr
        image = json.loads(done.stdout)["image"]
        says = ["run", "--rm", "--network", "none", "--entrypoint", "python", image, "-c"]
        assert alone.docker(*says, "import tensorflow, six; print(six.__version__)") == "1.17.0"
    done = tree.workspace.build("--json")
    assert json.loads(done.stdout)["reused"], "where there is a network, it is the wheel of the same plan"
