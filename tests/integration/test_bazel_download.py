import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.workspace import CACHE, Workspace
from tests.server import QuietHandler, serve
from toolkit.versions.table import load_table

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]

RELEASES = "https://github.com/bazelbuild/bazel/releases/download"
BINARY = "#!/bin/sh\necho 'ERROR: served and run' >&2\nexit 37\n"
"""A script that is served in place of Bazel and reports that it ran."""


def send_release(request: QuietHandler) -> None:
    if request.path == "/6.5.0/bazel-6.5.0-linux-x86_64":
        request.answer(200, BINARY.encode())
    else:
        request.answer(404)


@pytest.fixture
def served() -> Iterator[str]:
    with serve(GET=send_release) as address:
        yield f"http://{address}"


def build(clone: Path, served: str, folder: Path) -> tuple[Workspace, int, str]:
    dockerfile = clone / "docker/Dockerfile"
    text = dockerfile.read_text()
    assert RELEASES in text
    dockerfile.write_text(text.replace(RELEASES, served))
    folder.mkdir()
    workspace = Workspace(folder)
    workspace.root = clone
    done = workspace.toolkit("build-wheel", "--source", str(workspace.source), "--cache", CACHE)
    return workspace, done.returncode, done.stderr


def test_other_bytes_than_pinned_are_refused(clone: Path, served: str, tmp_path: Path) -> None:
    workspace, code, said = build(clone, served, tmp_path / "user")
    assert code == 8, said
    assert "error: the build failed: a downloaded file has other bytes than were pinned" in said
    assert "served and run" not in said
    assert workspace.results == []


@pytest.mark.weekly
def test_pinned_bytes_are_run(clone: Path, served: str, tmp_path: Path) -> None:
    table = clone / "toolkit/versions/table.yaml"
    pinned = load_table().bazel_rows["6.5.0"].sha256["x86_64"]
    table.write_text(table.read_text().replace(pinned, hashlib.sha256(BINARY.encode()).hexdigest()))
    _, code, said = build(clone, served, tmp_path / "user")
    assert code == 6, said
    assert "served and run" in said
