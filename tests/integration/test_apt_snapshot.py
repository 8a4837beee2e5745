import json
import os
import re
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.integration.docker import https, snapshot, stages
from tests.integration.workspace import Workspace

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600), pytest.mark.usefixtures("bazel")]


@contextmanager
def make_base(settings: Path, origin: str = stages.STANDIN, command: str = "true") -> Iterator[str]:
    name = f"toolkit/tests-snapshot:{uuid.uuid4().hex[:8]}"
    folder = settings.parent
    (folder / "Dockerfile").write_text(f"FROM {origin}\nCOPY {settings.name} /etc/apt/apt.conf.d/\nRUN {command}\n")
    subprocess.run(["docker", "buildx", "build", "--load", "--tag", name, folder], check=True, capture_output=True)
    try:
        yield name
    finally:
        subprocess.run(["docker", "image", "rm", name], check=True, capture_output=True)


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path)


@pytest.mark.weekly
def test_day_is_built_with_and_recorded(workspace: Workspace, tmp_path: Path, compiler: str) -> None:
    """The base lacks one package, because installing all of them takes a minute."""
    context = tmp_path / "base"
    context.mkdir()
    removal = "dpkg --purge patchelf"
    with snapshot.serve() as archive, make_base(archive.write_settings(context), compiler, removal) as base:
        done = workspace.build("--base-image", base, "--apt-snapshot", snapshot.DAY, "--json")
        assert done.returncode == 0, done.stderr
        assert archive.asked
        assert all(f"/{snapshot.DAY}/" in path for path in archive.asked)
    value = json.loads(done.stdout)
    assert (value["floating"], value["level"]) == ([], "R0")
    facts = json.loads((workspace.folder / value["folder"] / "manifest.json").read_text())["facts"]
    assert facts["lock"]["pins"]["apt-snapshot"] == snapshot.DAY
    assert facts["arguments"]["APT_SNAPSHOT"] == snapshot.DAY


def test_day_that_is_not_there_is_named_and_the_archive_was_read_with_the_bundle(
    workspace: Workspace, tmp_path: Path
) -> None:
    """The archive is empty, and only the bundle has the certificate of its authority."""
    context, files = tmp_path / "base", tmp_path / "files"
    context.mkdir()
    files.mkdir()
    with https.serve(files, tmp_path) as url:
        rules = ("Origin::Debian", "Override::Label::Debian-Security")
        settings = context / "99snapshot"
        settings.write_text("".join(f'Acquire::Snapshots::URI::{rule} "{url}/@SNAPSHOTID@/";\n' for rule in rules))
        bundle = tmp_path / "bundle.pem"
        known = Path(os.environ.get("SSL_CERT_FILE", "/etc/ssl/certs/ca-certificates.crt"))
        bundle.write_text(known.read_text() + (tmp_path / "authority.pem").read_text())
        with make_base(settings) as base:
            words = ("--base-image", base, "--apt-snapshot", "20200101T000000Z", "--ca-bundle", str(bundle))
            done = workspace.build(*words)
    assert done.returncode == 6, done.stderr
    assert "error: the build failed: Debian's or Ubuntu's packages cannot be fetched" in done.stderr
    assert re.search(r"/20200101T000000Z \S+ Release' does not have a Release file", done.stderr), done.stderr
    assert "cannot read Debian's archive of the day 20200101T000000Z" in done.stderr
    assert "--apt-snapshot" in done.stderr
    assert "certificate verify" not in done.stderr
    assert list((workspace.folder / "dist").iterdir()) == []
