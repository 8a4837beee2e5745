"""Builds with a real cache server, whole and broken. ``TOOLKIT_FARM=all`` runs it."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.docker import justbuild, webdav
from tests.integration.docker.test_wheel import change
from tests.integration.place import Place
from tests.integration.test_farm_faults import require_wheel

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.timeout(3600), pytest.mark.usefixtures("bazel")]

all_cases = pytest.mark.skipif(os.environ.get("TOOLKIT_FARM") != "all", reason="TOOLKIT_FARM is not `all`")

DAMAGE = """
import pathlib
files = sorted(path for path in pathlib.Path("/srv/cache/cas").rglob("*") if path.is_file())
for number, path in enumerate(files):
    content = path.read_bytes()
    path.write_bytes([content[:10], content[:-1] + b"x", content][number % 3])
"""


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(tmp_path)
    change(place.source)  # in no cache
    return place


@all_cases
def test_cache_server_serves_hits_and_costs_nothing_but_time_when_it_is_broken(
    new_cache: Callable[[], str], place: Place
) -> None:
    with webdav.serve() as (url, name):

        def run(out: str, *more: str) -> subprocess.CompletedProcess[str]:
            return place.build("--json", "--cache", new_cache(), "--remote-cache", url, "--out", out, *more)

        def build(out: str, *more: str) -> tuple[str, int]:
            done = run(out, *more)
            return require_wheel(done), json.loads(done.stdout)["actions"]["cached"]

        digest, hits = build("first")
        assert hits == 0
        assert build("second") == (digest, 15)
        justbuild.call("exec", name, "python3", "-c", DAMAGE)
        # Bazel 7 takes a result without its bytes, and asks for them when it is too late to compile.
        late = run("dist")
        assert (late.returncode, place.results) == (6, []), late.stderr
        assert "because of a remote cache error" in late.stderr
        again, hits = build("damaged", "--bazel-argument", "--remote_download_outputs=all")
        assert again == digest
        assert hits < 15
        justbuild.call("exec", name, "chmod", "000", "/srv/cache", "/srv/temporary")
        assert build("refusing") == (digest, 0)
