"""What a build does with wrong bytes of its executor. ``TOOLKIT_FARM=all`` runs it."""

import json
import os
import subprocess
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.docker import justbuild
from tests.integration.docker.test_wheel import change, edit
from tests.integration.place import Place
from tests.integration.test_farm_faults import require_failure, require_wheel
from tests.integration.test_poisoned_cache import note

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.timeout(3600), pytest.mark.usefixtures("bazel")]

all_cases = pytest.mark.skipif(os.environ.get("TOOLKIT_FARM") != "all", reason="TOOLKIT_FARM is not `all`")

SWAP = """
import pathlib, sys
words = [word.encode() for word in sys.argv[1:]]
for path in filter(pathlib.Path.is_file, pathlib.Path("/srv/just").rglob("*")):
    content = path.read_bytes()
    if content[:4] == b"\\x7fELF" and b".rela" in content and words[0] in content:
        path.chmod(0o644)
        path.write_bytes(content.replace(*words))
"""
"""Replaces a word in every object file, as if another source had been compiled."""

SPOIL = """
import pathlib
for path in pathlib.Path("/srv/just").rglob("*"):
    if path.is_file() and path.read_bytes()[:2] == b"PK":
        path.chmod(0o644)
        path.write_bytes(path.read_bytes()[:-1] + b"x")
"""


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(tmp_path)
    change(place.source)  # in no cache
    return place


@all_cases
def test_wrong_bytes_of_an_output_end_the_build_and_of_an_input_are_found_by_a_second_build(
    new_cache: Callable[[], str], place: Place
) -> None:
    with justbuild.serve() as farm:

        def build(out: str) -> subprocess.CompletedProcess[str]:
            return place.build("--json", "--cache", new_cache(), "--remote-executor", farm.url, "--out", out)

        good, bad = uuid.uuid4().hex, uuid.uuid4().hex
        note(place, good)
        digest = require_wheel(build("good"))
        farm.run("python3", "-c", SWAP, good, bad)
        edit(place.source / "tensorflow/core/kernels/version_script.lds", "{", "/* linked again */ {")
        done = build("wrong")
        assert require_wheel(done) != digest, "Bazel cannot know"
        checked = place.toolkit("verify", json.loads(done.stdout)["folder"], "--rebuild")
        assert checked.returncode == 7, checked.stderr
        assert "error: the second build gave another wheel" in checked.stderr

        farm.run("python3", "-c", SPOIL)
        require_failure(build("dist"), place)
