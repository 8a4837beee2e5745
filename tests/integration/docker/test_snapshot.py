import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.docker import https, snapshot, stages

pytestmark = pytest.mark.engine

PACKAGE = "patchelf"


@pytest.fixture
def archive() -> Iterator[snapshot.SnapshotServer]:
    with snapshot.serve() as server:
        yield server


def install(day: str, settings: Path, *options: str, before: str = "") -> "subprocess.CompletedProcess[str]":
    script = f"{before}/build/install-packages {PACKAGE} && dpkg-query --show {PACKAGE}"
    argv = ["docker", "run", "--rm", "--env", f"APT_SNAPSHOT={day}", *options]
    argv += ["--volume", f"{stages.ROOT}/docker/scripts:/build:ro"]
    argv += ["--volume", f"{settings}:/etc/apt/apt.conf.d/99snapshot:ro", stages.STANDIN, "sh", "-c", script]
    return subprocess.run(argv, capture_output=True, text=True, check=False)


def test_packages_come_from_the_archive_and_of_the_day_asked(archive: snapshot.SnapshotServer, tmp_path: Path) -> None:
    done = install(snapshot.DAY, archive.write_settings(tmp_path))
    assert done.returncode == 0, done.stderr
    assert PACKAGE in done.stdout
    assert all(f"/{snapshot.DAY}/" in path for path in archive.asked)
    assert [path for path in archive.asked if path.endswith(".deb")], "the package itself too, not its index alone"
    suites = {path.split("/dists/")[1].split("/")[0] for path in archive.asked if "/dists/" in path}
    assert {"trixie", "trixie-security"} <= suites


def test_archive_that_does_not_answer_is_an_error_and_not_the_mirror_instead(tmp_path: Path) -> None:
    with snapshot.serve() as archive:
        settings = archive.write_settings(tmp_path)
    done = install(snapshot.DAY, settings)
    assert done.returncode == 5, done.stdout
    assert f"apt cannot read Debian's archive of the day {snapshot.DAY}" in done.stderr


def test_archive_behind_a_proxy_is_trusted_with_the_bundle(tmp_path: Path) -> None:
    """The server has no files. A trusted server is asked for them; an untrusted one is not."""
    files = tmp_path / "files"
    files.mkdir()
    rules = ("Origin::Debian", "Override::Label::Debian-Security")
    with https.serve(files, tmp_path) as url:
        settings = tmp_path / "99snapshot"
        settings.write_text("".join(f'Acquire::Snapshots::URI::{rule} "{url}/@SNAPSHOTID@/";\n' for rule in rules))
        without = install(snapshot.DAY, settings)
        trusted = install(snapshot.DAY, settings, "--volume", f"{tmp_path}/authority.pem:/run/secrets/ca:ro")
    assert (without.returncode, trusted.returncode) == (5, 5)
    assert "certificate verify failed" in without.stderr
    assert "certificate verify failed" not in trusted.stderr
    assert "does not have a Release file" in trusted.stderr
